"""``agviz view DIR``: the ranks of a distributed program, and the way into one and back."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest
from textual import events

from agviz.ranks.folder import Folder
from agviz.ranks.phases import Phase, Phases
from agviz.ranks.run import Run
from agviz.tui.panels.ranks import GLYPHS, RankLanes, RankPanel, cells_of
from agviz.tui.ranks_app import RanksApp
from agviz.tui.screens.compare import CompareScreen
from agviz.tui.screens.help import Help
from agviz.tui.timeline import Window
from tests.ranks_support import PASSES
from tests.slow_cases import slow_but
from tests.test_tui_terminal import TMUX, Terminal
from tests.tui_support import calm, lines, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from textual.pilot import Pilot

    from agviz.tui.screens.ranks import RanksScreen


@pytest.fixture(scope="module")
def forty_ranks(two_ranks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first rank again and again, the second one as rank 23."""
    folder = tmp_path_factory.mktemp("forty")
    first, second = (rank.path for rank in Folder.open(two_ranks).ranks)
    for number in range(40):
        path = folder / f"agviz-train.rank{number}.1.agviz"
        shutil.copyfile(second if number == 23 else first, path)
        with sqlite3.connect(path) as database:
            (text,) = database.execute("SELECT value FROM meta WHERE key = 'rank'").fetchone()
            rank = json.loads(text) | {"number": number, "world_size": 40}
            database.execute("UPDATE meta SET value = ? WHERE key = 'rank'", (json.dumps(rank),))
        database.close()
    return folder


async def settle(pilot: Pilot[None]) -> RanksScreen:
    app = cast("RanksApp", pilot.app)

    def waits() -> list[Callable[[], bool]]:
        readers = [app.ranks_reader, *([] if app.opened is None else [app.opened.reader])]
        return [reader.wait for reader in readers]

    await calm(pilot, waits)
    return app.ranks


async def press(pilot: Pilot[None], *keys: str) -> RanksScreen:
    for key in keys:
        pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
        screen = await settle(pilot)
    return screen


@asynccontextmanager
async def opened(folder: Path, size: tuple[int, int] = (100, 30)) -> AsyncIterator[Pilot[None]]:
    async with RanksApp(folder).run_test(size=size, notifications=True) as pilot:
        await settle(pilot)
        yield pilot


def lanes(screen: RanksScreen) -> list[str]:
    return lines(screen.query_one(RankLanes))


def ordinal(screen: RanksScreen) -> int:
    assert screen.window is not None
    return screen.window.ordinal


def top(pilot: Pilot[None]) -> object:
    """The screen that is seen."""
    return pilot.app.screen


def is_opened(app: RanksApp) -> bool:
    return app.opened is not None


def title(screen: RanksScreen) -> str:
    return str(screen._title())


async def test_it_opens_at_the_longest_wait(two_ranks: Path) -> None:
    meetings = Run.read(Folder.open(two_ranks)).meetings()
    async with opened(two_ranks) as pilot:
        screen = await settle(pilot)
        axis, first, second = lanes(screen)[:3]
        assert "0 ms" in axis
        assert first.startswith("rank 0 ")
        assert re.search(r"waiting for rank 1, \d+ ms", first)
        assert re.search(r"backward, \d+ ms", second)
        assert screen.window is not None
        late = [
            max(each.lateness_ns for each in meetings if each.ordinal == number and each.is_inside)
            for number in range(PASSES)
        ]
        assert late[screen.window.ordinal] == max(late)
        assert f"pass {screen.window.ordinal} of {PASSES} · 2 ranks" in title(screen)


async def test_keys_go_from_pass_to_pass(two_ranks: Path) -> None:
    async with opened(two_ranks) as pilot:
        screen = await press(pilot, "minus", "minus")
        assert screen.window is not None
        assert (screen.window.first, screen.window.last) == (0, PASSES - 1)
        assert [f"#{number}" in lanes(screen)[0] for number in range(PASSES)] == [True] * PASSES
        screen = await press(pilot, "0", "N", "left", "h")
        assert ordinal(screen) == 0
        for number, key in enumerate(("n", "right"), start=1):
            screen = await press(pilot, key)
            assert ordinal(screen) == number
            assert f"pass {number} of {PASSES}" in title(screen)
        await press(pilot, "n")
        notices = [notice.message for notice in screen.app._notifications]
        assert notices == ["This is the last pass."]
        found = []
        for _ in range(PASSES):
            screen = await press(pilot, "x")
            found.append(ordinal(screen))
        assert sorted(found) == list(range(PASSES))


async def test_more_is_said_of_the_rank_under_the_cursor(two_ranks: Path) -> None:
    async with opened(two_ranks) as pilot:
        panel = (await settle(pilot)).query_one(RankPanel)
        await until(pilot, lambda: panel.border_title == "Rank 1")  # of which the answer speaks
        await settle(pilot)
        said = "\n".join(lines(panel))
        assert re.search(r"\d\d\d ms  SlowBackward", said)
        assert "this one" in said
        panel = (await press(pilot, "k")).query_one(RankPanel)
        assert panel.border_title == "Rank 0"
        said = "\n".join(lines(panel))
        assert re.search(r"░ waiting \d+ ms", said)
        assert re.search(r"ms .* rank 1 +all_reduce \[\d+\] Float", said)


async def test_two_ranks_are_compared_at_the_same_pass(two_ranks: Path) -> None:
    async with opened(two_ranks) as pilot:
        app = cast("RanksApp", pilot.app)
        # "j", because the cursor begins at the rank that an answer names, if one does.
        await press(pilot, "N", "N", "n", "j", "enter")
        session = app.opened
        assert session is not None
        assert session.complete("compare ra") == ["compare rank 0", "compare rank 1"]
        session.carry_out("compare rank 0")
        for _ in range(200):
            await pilot.pause(0.05)
            screen = app.screen
            if isinstance(screen, CompareScreen) and screen.read and screen.read.said:
                break
        run = Run.read(Folder.open(two_ranks))
        beside = cast("CompareScreen", app.screen).read
        assert beside is not None
        assert [(side.trace.path, side.task.id) for side in (beside.beside.a, beside.beside.b)] == [
            (str(run.ranks[number].file.path), run.ranks[number].passes[1].graph_task)
            for number in (0, 1)
        ]


async def test_a_rank_is_opened_at_the_pass_and_left_again(two_ranks: Path) -> None:
    async with opened(two_ranks) as pilot:
        app = cast("RanksApp", pilot.app)
        screen = await press(pilot, "N", "N", "n", "j", "enter")
        session = app.opened
        assert session is not None
        assert top(pilot) is session
        assert session.view is not None
        run = Run.read(Folder.open(two_ranks))
        assert session.view.recording.key.graph_task == run.ranks[1].passes[1].graph_task
        assert session.view.recording.path == str(run.ranks[1].file.path)
        assert "rank 1" in session.view.why
        await press(pilot, "n", "n", "backspace")
        assert top(pilot) is screen
        assert not is_opened(app)
        await asyncio.to_thread(session.reader.join, 10)
        assert not session.reader.is_alive()
        await press(pilot, "k", "enter")
        assert app.opened is not None
        assert app.opened.view is not None
        assert "rank 0" in app.opened.view.why


@pytest.mark.slow
async def test_many_ranks_are_folded(forty_ranks: Path) -> None:
    async with opened(forty_ranks, (80, 24)) as pilot:
        screen = await settle(pilot)
        shown = lanes(screen)
        assert shown[1].startswith("rank 23 ")
        assert "39 other ranks" in shown[2]
        assert [line.split(" ", 1)[0] for line in shown[3:6]] == ["min", "median", "max"]
        assert all("waiting for rank 23" in line for line in shown[3:6])
        screen = await press(pilot, "j", "enter")  # on the line that says how many are folded
        assert [line.split()[1] for line in lanes(screen)[1:6]] == ["0", "1", "2", "3", "4"]
        await press(pilot, "G")
        assert lanes(screen)[-1].startswith("rank 39")
        screen = await press(pilot, "space")
        assert "39 other ranks" in "\n".join(lanes(screen))


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize(
    "size",
    slow_but({"(120, 40)", "(40, 12)"}, [(80, 24), (120, 40), (200, 60), (40, 12)]),
)
async def test_it_fits_every_terminal(
    forty_ranks: Path, two_ranks: Path, size: tuple[int, int]
) -> None:
    for folder in (two_ranks, forty_ranks):
        async with opened(folder, size) as pilot:
            screen = await settle(pilot)
            widget = screen.query_one(RankLanes)
            assert len(lanes(screen)) >= 3
            assert all(len(line) <= widget.content_size.width for line in lanes(screen))
            panel = screen.query_one(RankPanel)
            assert panel.region.bottom <= size[1] - 1
            assert panel.content_size.height >= 2


async def test_help_names_the_keys(two_ranks: Path) -> None:
    async with opened(two_ranks) as pilot:
        await press(pilot, "question_mark")
        assert isinstance(top(pilot), Help)
        screen = await press(pilot, "escape", "R")
        assert top(pilot) is screen


async def test_a_rank_without_a_trace_is_named(two_ranks: Path, tmp_path: Path) -> None:
    shutil.copy(Folder.open(two_ranks).ranks[1].path, tmp_path)
    async with opened(tmp_path) as pilot:
        screen = await settle(pilot)
        assert "✗ no trace of rank 0" in title(screen)
        assert lanes(screen)[1].startswith("rank 1")


async def test_a_damaged_file_is_said(two_ranks: Path, tmp_path: Path) -> None:
    copies = [tmp_path / rank.path.name for rank in Folder.open(two_ranks).ranks]
    for copy in copies:
        shutil.copy(two_ranks / copy.name, copy)
    async with opened(tmp_path) as pilot:
        for copy in copies:
            copy.unlink()
        screen = await press(pilot, "R")
        (notice,) = screen.app._notifications
        assert "holds no trace of a rank" in notice.message


def test_a_cell_shows_what_takes_most_of_it(two_ranks: Path) -> None:
    phases = Phases(Run.read(Folder.open(two_ranks)))
    begin, end = phases.span(0, PASSES - 1)
    stretches = phases.stretches(0)
    axis = Window(begin, end, 150)
    for column, cell in enumerate(cells_of(stretches, axis)):
        left, right = axis.time(column), axis.time(column + 1)
        most = max(min(s.end_ns, right) - max(s.begin_ns, left) for s in stretches)
        if cell is None:
            assert most <= 0
        else:
            assert min(cell.end_ns, right) - max(cell.begin_ns, left) == most
    assert len(set(GLYPHS.values())) == len(Phase)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path / "tmux", 80, 24)
    yield terminal
    terminal.run("kill-server")


@pytest.mark.skipif(TMUX is None, reason="tmux is not installed")
def test_a_folder_is_viewed_in_a_terminal(terminal: Terminal, two_ranks: Path) -> None:
    terminal.type(f"{sys.executable} -m agviz view {two_ranks}; echo left with $?", "Enter")
    screen = terminal.wait_for(
        lambda screen: "waiting for rank 1" in screen and "SlowBackward" in screen
    )
    assert max(map(len, screen.splitlines())) <= 80
    terminal.type("j")
    terminal.wait_for(lambda screen: "Rank 1" in screen and "SlowBackward" in screen)
    terminal.type("Enter")
    terminal.wait_for(lambda screen: "opened at this pass of rank 1" in screen)
    terminal.type("BSpace")
    terminal.wait_for(lambda screen: "waiting for rank 1" in screen)
    terminal.run("resize-window", "-t", "agviz", "-x", "200", "-y", "60")
    terminal.wait_for(lambda screen: "all have joined" in screen)
    terminal.type("q")
    screen = terminal.wait_for(lambda screen: re.search(r"left with \d", screen) is not None)
    assert "left with 0" in screen
