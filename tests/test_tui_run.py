"""The screen of a whole run: it opens where something is wrong, and says what."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import torch
from textual.widgets import Input
from torch import Tensor, nn

import agviz
from agviz.analysis.pass_marks import PassMark
from agviz.analysis.run_table import RunTable
from agviz.traces.reader import Trace
from agviz.tui.app import AgvizApp
from agviz.tui.drivers import RecordedDriver
from agviz.tui.hints import Hints
from agviz.tui.panels.run import RunChart, RunList
from agviz.tui.panels.what_happened import WhatHappened
from agviz.tui.run_reading import ORDERS, PassJudged
from agviz.tui.screens.help import Help
from agviz.tui.screens.run import RunScreen
from agviz.tui.text import plain
from agviz_engine.events import GONE_BACK
from tests.tui_support import press, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.pilot import Pilot

    from agviz.tui.panels.panel import Panel

PASSES = 12
WRONG = 7


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 passes, the eighth of which has a square root of zero."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    found = tmp_path_factory.mktemp("run") / "t.agviz"
    with agviz.trace(path=found):
        for step in range(PASSES):
            model.zero_grad()
            y = model(torch.randn(5, 4))
            loss = y.square().mean() * (100 if step == 3 else 1)
            if step == WRONG:
                loss = loss + (y - y).abs().sqrt().sum()
            loss.backward()
    return found


@pytest.fixture
def named(path: Path, tmp_path: Path) -> Path:
    """The same, called as ``agviz run`` calls its files."""
    return Path(shutil.copy(path, tmp_path / "agviz-train.4711.agviz"))


def begun(path: Path) -> AgvizApp:
    return AgvizApp([path], make_driver=partial(RecordedDriver, begins_with_run=True))


async def opened(pilot: Pilot[None], *, is_measured: bool = True) -> RunScreen:
    """The screen, once everything was read and said."""
    for _ in range(100):
        await pilot.pause(0.05)
        screen = pilot.app.screen
        if isinstance(screen, RunScreen) and screen.judged is not None:
            rows = screen.query_one(RunList)
            row = rows.run_row
            bottom = rows.scroll_offset.y + rows.content_size.height - rows.header_height
            is_seen = rows.scroll_offset.y <= rows.cursor < bottom
            is_judged = row is not None and row.task.id == screen.judged
            is_read = row is not None and (row.norm is not None or not is_measured)
            if is_judged and is_read and is_seen:
                return screen
    raise AssertionError("nothing was said about a pass")


def lines(screen: RunScreen, kind: type[Panel]) -> list[str]:
    panel = screen.query_one(kind)
    width, height = panel.scrollable_content_region.size
    return [plain(panel.row(y, width)[0]).strip() for y in range(height)]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_it_opens_at_the_first_pass_that_is_not_good(
    path: Path, size: tuple[int, int]
) -> None:
    async with begun(path).run_test(size=size) as pilot:
        screen = await opened(pilot)
        rows = screen.query_one(RunList)
        assert rows.place == WRONG
        listed = lines(screen, RunList)
        (line,) = [line for line in listed if line.startswith("!")]
        assert "NaN" in line
        said = "\n".join(lines(screen, WhatHappened))
        assert said.startswith("✗ sqrt at zero, in SqrtBackward0")
        assert "test_tui_run.py:" in said
        assert "Add a small eps under the root" in " ".join(said.split())
        assert f"{PASSES} backward passes · 1 not good" in str(
            screen.query_one("#run-title").render()
        )
        chart = [line for line in lines(screen, RunChart) if line[:1].isalpha()]
        assert [line.split()[0] for line in chart] == ["loss", "grad", "time"]
        assert "!" in chart[1]
        assert "!" not in chart[0]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("keys", [(), ("enter", "f5"), ("enter", "f6"), ("L",)])
async def test_how_to_get_help_and_how_to_leave_are_said_however_small_the_screen_is(
    path: Path, keys: tuple[str, ...]
) -> None:
    async with begun(path).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await press(pilot, *keys)
        line = pilot.app.screen.query_one(Hints).render().plain
        assert "? Help  q Quit" in line


@pytest.mark.parametrize("width", [72, 100, 160])
async def test_the_title_says_how_many_are_not_good_whatever_has_no_room(
    named: Path, width: int
) -> None:
    async with begun(named).run_test(size=(width, 30)) as pilot:
        await opened(pilot)
        shown = pilot.app.screen.query_one("#run-title").render_line(0).text
        assert "passes · 1 not good" in shown


async def test_enter_leads_to_where_it_went_wrong_and_p_back(path: Path) -> None:
    async with begun(path).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        row = screen.query_one(RunList).run_row
        assert row is not None
        await pilot.press("enter")
        app = cast("AgvizApp", pilot.app)
        for _ in range(40):
            await pilot.pause(0.05)
            if app.screen is app.shown:
                break
        await settle(pilot)
        view = app.shown.view
        assert view is not None
        assert view.recording.key.graph_task == row.task.id
        assert view.moment.event is not None
        assert view.moment.event.seq == view.recording.first_nonfinite
        await pilot.press("p")
        again = await opened(pilot)
        assert again is not screen
        assert again.query_one(RunList).place == WRONG
        await pilot.press("escape")
        await pilot.pause(0.1)
        assert app.screen is app.shown


async def test_rows_are_sorted_and_filtered(path: Path) -> None:
    async with begun(path).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        rows = screen.query_one(RunList)
        seen = []
        for _ in ORDERS:
            before = rows.border_subtitle
            await pilot.press("s")
            for _ in range(40):
                await pilot.pause(0.05)
                if rows.border_subtitle != before:
                    break
            seen.append([*rows.places])
        by_verdict, by_time, by_loss, by_norm, by_change, by_nodes, by_number = seen
        assert by_number == [*range(PASSES)]
        assert by_verdict == [WRONG, *(place for place in range(PASSES) if place != WRONG)]
        assert by_loss[0] == 3
        assert by_norm[:2] == [WRONG, 3]
        assert by_change[0] in {WRONG, WRONG + 1}
        assert sorted(by_time) == by_number
        with Trace.open(path) as trace:
            nodes = [trace.graph_tasks[place].nodes for place in by_nodes]
        assert nodes == sorted(nodes, reverse=True)
        await pilot.press("slash", *"nan")
        for _ in range(40):
            await pilot.pause(0.05)
            if rows.line_count == 1:
                break
        assert [*rows.places] == [WRONG]
        await pilot.press("enter")
        assert screen.focused is rows
        await pilot.press("escape")
        await pilot.pause(0.3)
        assert not screen.query_one(Input).display
        assert rows.line_count == PASSES


async def test_the_next_wrong_pass_and_what_is_said_of_a_good_one(path: Path) -> None:
    async with begun(path).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        await pilot.press("g")
        screen = await opened(pilot)
        assert screen.query_one(RunList).place == 0
        assert lines(screen, WhatHappened)[0].startswith("✓ nothing unusual in backward pass")
        await pilot.press("x")
        await opened(pilot)
        assert screen.query_one(RunList).place == WRONG
        await pilot.press("x")
        await pilot.pause(0.1)
        assert screen.query_one(RunList).place == WRONG
        await pilot.press("question_mark")
        await pilot.pause(0.1)
        assert pilot.app.screen is not screen


async def test_one_pass_has_no_chart(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        torch.tensor(math.pi, requires_grad=True).square().backward()
    async with begun(path).run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        assert not screen.query_one(RunChart).display
        assert "9.87" in lines(screen, RunList)[1]


async def test_passes_that_were_not_measured_have_no_ticks(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with contextlib.suppress(ZeroDivisionError), agviz.trace(path=path, values="none"):
        torch.ones(3, requires_grad=True).square().sum().backward()
        failing = torch.ones(3, requires_grad=True).square()
        failing.register_hook(lambda _: 1 // 0)
        failing.sum().backward()
    async with begun(path).run_test(size=(80, 24)) as pilot:
        listed = lines(await opened(pilot, is_measured=False), RunList)
        assert [line[0] for line in listed[1:3]] == ["?", "✗"]


def test_a_pass_that_went_back_is_not_wrong(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        for _ in range(2):
            torch.ones(3, requires_grad=True).square().sum().backward()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM run")
        database.execute("INSERT INTO string SELECT max(id) + 1, ? FROM string", (GONE_BACK,))
        database.execute(
            "UPDATE graph_task SET error = (SELECT max(id) FROM string)"
            " WHERE id = (SELECT min(id) FROM graph_task)"
        )
    with agviz.Trace.open(path) as trace:
        table = RunTable(trace)
        assert [row.mark for row in table] == [PassMark.WENT_BACK, None]
        assert table.wrong == []


async def test_the_list_grows_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "growing.agviz"
    weight = torch.ones(3, requires_grad=True)
    with agviz.trace(path=path) as recording:
        weight.square().sum().backward()
        assert len(recording.trace.graph_tasks) == 1  # which brings all to the file
        app = begun(path)
        async with app.run_test(size=(120, 40)) as pilot:
            screen = await opened(pilot)
            rows = screen.query_one(RunList)
            assert rows.line_count == 1
            weight.square().sum().backward()
            norm = f"{math.sqrt(48):.4g}"
            for _ in range(100):
                await pilot.pause(0.05)
                if any(norm in line for line in lines(screen, RunList)):
                    break
            assert rows.line_count == 2
            assert norm in lines(screen, RunList)[2]


async def test_a_pass_that_comes_to_its_end_is_listed_so(tmp_path: Path) -> None:
    path = tmp_path / "growing.agviz"
    goes_on = threading.Event()
    value = torch.ones(3, requires_grad=True).square()

    def stay(_gradient: Tensor) -> None:
        goes_on.wait(60)

    value.register_hook(stay)
    with agviz.trace(path=path) as recording:
        training = threading.Thread(target=value.sum().backward)
        training.start()
        for _ in range(600):
            if recording.trace.graph_tasks:
                break
            await asyncio.sleep(0.01)
        try:
            async with begun(path).run_test(size=(120, 40)) as pilot:
                await until_said(pilot, "●")
                goes_on.set()
                training.join()
                await until_said(pilot, "✓")
        finally:
            goes_on.set()
            training.join()


async def until_said(pilot: Pilot[None], glyph: str) -> None:
    """Until the first line of the list, and what is said of it, begin so."""
    listed, said = [""], [""]
    for _ in range(100):
        await pilot.pause(0.05)
        if isinstance(pilot.app.screen, RunScreen):
            listed, said = (lines(pilot.app.screen, kind) for kind in (RunList, WhatHappened))
            begins = said[0].startswith("✓" if glyph == "✓" else "?") if said else False
            if begins and any(line.startswith(glyph) for line in listed[1:2]):
                return
    raise AssertionError((listed[:2], said[:1]))


async def test_an_answer_that_comes_while_the_list_is_left_does_no_harm(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = begun(path)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        late: list[Callable[[object], None]] = []

        def hold(_file: int, _question: object, take: Callable[[object], None]) -> None:
            late.append(take)

        monkeypatch.setattr(app.reader, "ask_file", hold)
        await pilot.press("g")
        for _ in range(100):
            if late:
                break
            await pilot.pause(0.05)
        screen.dismiss(None)
        for _ in range(100_000):
            if not screen.query(RunList):
                break
            await asyncio.sleep(0)
        assert screen.is_attached
        assert not screen.query(RunList)
        (take,) = late
        take(PassJudged(None, (), ()))


async def test_a_pass_that_is_read_while_help_is_over_the_list_is_not_opened(path: Path) -> None:
    async with begun(path).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        app = cast("AgvizApp", pilot.app)
        goes_on = threading.Event()
        app.reader.ask_files(lambda _: goes_on.wait(), lambda _: None)
        await pilot.press("enter", "question_mark")
        assert Help in map(type, app.screen_stack)
        goes_on.set()
        await settle(pilot)
        assert Help in map(type, app.screen_stack)
        await pilot.press("escape")
        assert app.screen_stack[-1] is screen
        await pilot.press("enter")
        await settle(pilot)
        assert app.screen is app.shown
