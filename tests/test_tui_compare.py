"""Two passes beside each other: the model against diff and plain torch, and the screen."""

from __future__ import annotations

import math
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from textual.widgets import Static
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.analysis import beside_words
from agviz.analysis.alignment import NOWHERE
from agviz.analysis.beside import Beside, RowMark, counterparts
from agviz.analysis.diff import diff
from agviz.analysis.pass_columns import PassColumns
from agviz.traces.reader import Trace
from agviz.tui.app import AgvizApp
from agviz.tui.drivers import RecordedDriver
from agviz.tui.panels.compare import CompareAnswer, CompareList
from agviz.tui.panels.files import FileList
from agviz.tui.panels.run import RunList
from agviz.tui.screens.compare import CompareScreen
from agviz.tui.screens.run import RunScreen
from agviz.tui.text import plain
from tests.tui_support import settle, until

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot

    from agviz.tui.model import Key
    from agviz.tui.panels.panel import Panel

PASSES = 4
LINES: dict[str, int] = {}
"""The line of the forward that a change is at."""


def line_here() -> int:
    """The line before the one that calls."""
    import inspect

    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno - 1


class Model(nn.Module):
    """Two layers, and what is changed between them."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.change = change
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.change == "inserted":
            x = x.tanh()
            LINES["inserted"] = line_here()
        if self.change == "dtype":
            x = x.double().float()
            LINES["dtype"] = line_here()
        if self.change == "dropout":
            torch.manual_seed(7)
        x = nn.functional.dropout(x, 0.5)
        LINES["dropout"] = line_here()
        if self.change == "reentrant":
            again: Tensor = checkpoint(self.second, x, use_reentrant=True)
            return again
        found: Tensor = self.second(x)
        return found


def train(path: Path, change: str = "", **options: object) -> None:
    torch.manual_seed(0)
    model = Model(change)
    rate = 0.2 if change == "lr" else 0.1
    with agviz.trace(path=path, **options):  # type: ignore[arg-type]
        for step in range(PASSES):
            torch.manual_seed(step)
            x = torch.randn(3, 4)
            if change == "nan" and step == 2:
                x[0, 0] = math.nan
            loss = model(x)
            (loss.sum() if change == "dropout" else loss.square().sum()).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter.sub_(rate * parameter.grad)
                    parameter.grad = None


def beside(a: Trace, b: Trace, place: int = 0) -> Beside:
    return of_tasks(a, b, a.graph_tasks[place].id, b.graph_tasks[place].id)


def of_tasks(a: Trace, b: Trace, one: int, other: int) -> Beside:
    found = Beside(PassColumns(a, one), PassColumns(b, other))
    while found.read_on(1):
        pass
    return found


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("engine", ["exact", "native"])
@pytest.mark.parametrize("change", ["", "lr", "inserted", "dtype", "nan", "dropout", "reentrant"])
def test_it_says_what_diff_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, engine: str
) -> None:
    monkeypatch.setenv("AGVIZ_ENGINE", engine)
    train(tmp_path / "a")
    train(tmp_path / "b", change)
    with Trace.open(tmp_path / "a") as a, Trace.open(tmp_path / "b") as b:
        for one, other in counterparts(a, b):
            found = of_tasks(a, b, one, other)
            (oracle, *_) = diff(a, b, graph_tasks=(one, other)).passes
            rows = [found[row] for row in range(len(found))]
            assert [r.a for r in rows if r.b == NOWHERE] == [n.index for n in oracle.only_in_a]
            assert [r.b for r in rows if r.a == NOWHERE] == [n.index for n in oracle.only_in_b]
            marked = {(r.a, r.b) for r in rows if r.marks & RowMark.FIRST}
            assert marked == {each.indexes for each in oracle.first}
            diverge = {each.indexes for each in oracle.divergences}
            leaves = {node.index for node in oracle.reached}
            changed = {c.a.index for c in oracle.changes if c.what == "shapes of inputs"}
            for row in rows:
                known = (row.a, row.b) in diverge or row.a in leaves or row.a in changed
                assert row.differs == known, row
            if oracle.first:
                first = found.first
                assert first is not None
                assert (found[first].a, found[first].b) == oracle.first[0].indexes


def test_the_first_difference_is_at_the_line_that_was_changed(tmp_path: Path) -> None:
    train(tmp_path / "a")
    for change in ("inserted", "dtype"):
        train(tmp_path / change, change)
        with Trace.open(tmp_path / "a") as a, Trace.open(tmp_path / change) as b:
            for traces, side in (((a, b), "B"), ((b, a), "A")):
                said = " ".join(beside_words.sentences(beside(*traces)))
                assert (
                    f"test_tui_compare.py:{LINES[change]} in forward): it is only in {side}" in said
                )


def test_another_learning_rate_shows_from_the_second_pass_on(tmp_path: Path) -> None:
    train(tmp_path / "a")
    train(tmp_path / "b", "lr")
    with Trace.open(tmp_path / "a") as a, Trace.open(tmp_path / "b") as b:
        same = [beside(a, b, number).same for number in range(PASSES)]
    assert same == [True, False, False, False]


def test_nodes_that_are_not_finite_are_marked(tmp_path: Path) -> None:
    train(tmp_path / "a")
    train(tmp_path / "b", "nan")
    with Trace.open(tmp_path / "a") as a, Trace.open(tmp_path / "b") as b:
        found = beside(a, b, 2)
        nodes = b.nodes(b.graph_tasks[2].id)
        bad = {node.index for node in nodes if node.nonfinite and any(node.nonfinite)}
        marked = {found[row].b for row in found.bad if not nodes[found[row].b].is_leaf}
        assert marked == bad
        assert not any(found[row].marks & RowMark.BAD_A for row in found.bad)


def test_norms_are_those_of_torch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    with agviz.trace(path=tmp_path / "a"):
        model(torch.randn(5, 3)).square().sum().backward()
    with Trace.open(tmp_path / "a") as a:
        found = beside(a, a)
        norms = {
            facts.parameter: found.a.norms[node]
            for node in range(len(found.a))
            if (facts := found.a.graph[node]).is_leaf
        }
    for parameter, norm in norms.items():
        grad = model.get_parameter((parameter or "").rpartition(".")[2]).grad
        assert grad is not None
        assert norm == pytest.approx(float(grad.norm()), rel=1e-5)


def test_without_values_only_the_graphs_are_compared(tmp_path: Path) -> None:
    train(tmp_path / "a")
    train(tmp_path / "b", "lr", values="none")
    with Trace.open(tmp_path / "a") as a, Trace.open(tmp_path / "b") as b:
        found = beside(a, b, 1)
        said = [*beside_words.sentences(found)]
    assert found.same
    assert said[1] == "Values were not recorded in B: only the graphs and the order are compared."
    assert all(found[row].marks & RowMark.UNKNOWN for row in range(len(found)))


# The screen.


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    train(tmp_path / "a.agviz")
    train(tmp_path / "b.agviz", "lr")
    return [tmp_path / "a.agviz", tmp_path / "b.agviz"]


async def compared(pilot: Pilot[None]) -> CompareScreen:
    """The screen, once everything was read."""

    def is_read() -> bool:
        screen = pilot.app.screen
        return (
            isinstance(screen, CompareScreen)
            and screen.read is not None
            and bool(screen.read.said)
            and screen.read.pair == screen.pair
        )

    await until(pilot, is_read)
    await settle(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, CompareScreen)
    return screen


def lines(screen: CompareScreen, kind: type[Panel]) -> list[str]:
    panel = screen.query_one(kind)
    width, height = panel.scrollable_content_region.size
    return [plain(panel.row(y, width)[0]).rstrip() for y in range(height)]


def places(screen: CompareScreen, files: list[Path]) -> list[int]:
    """The passes that are compared, counted from 0 in their files."""
    return [place(key, files) for key in screen.pair]


def place(key: Key, files: list[Path]) -> int:
    with Trace.open(files[key.file]) as trace:
        return [task.id for task in trace.graph_tasks].index(key.graph_task)


def comparing(files: list[Path]) -> AgvizApp:
    return AgvizApp(files, make_driver=partial(RecordedDriver, compares=True))


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_two_files_open_at_the_first_passes_that_differ(
    files: list[Path], size: tuple[int, int]
) -> None:
    async with comparing(files).run_test(size=size) as pilot:
        screen = await compared(pilot)
        assert places(screen, files) == [1, 1]
        assert f"a.agviz  #{screen.pair.a.graph_task} · loss" in str(
            screen.query_one("#compare-a", Static).render()
        )
        assert f"b.agviz  #{screen.pair.b.graph_task} · loss" in str(
            screen.query_one("#compare-b", Static).render()
        )
        rows = screen.query_one(CompareList)
        assert screen.read is not None
        assert rows.cursor == screen.read.beside.first
        listed = lines(screen, CompareList)
        assert "B / A" in listed[0]
        assert any(line.startswith("▎≠") for line in listed)
        said = " ".join(" ".join(lines(screen, CompareAnswer)).split())
        assert said.startswith("First difference: ")
        assert ("more: agviz diff says all" in said) == (size == (80, 24))
        assert len(listed[1]) <= rows.scrollable_content_region.width


@pytest.mark.slow
async def test_every_key_of_the_comparison(files: list[Path]) -> None:
    async with comparing(files).run_test(size=(120, 40)) as pilot:
        screen = await compared(pilot)
        rows = screen.query_one(CompareList)
        assert screen.read is not None
        first = screen.read.beside.first
        assert first is not None
        differing = list(screen.read.beside.differing)
        await pilot.press("d")
        assert rows.cursor == differing[differing.index(first) + 1]
        await pilot.press("D")
        assert rows.cursor == first
        await pilot.press("G", "f")
        assert rows.cursor == first
        await pilot.press("n")
        assert rows.cursor == first + 1
        await pilot.press("N", "g", "x")
        assert rows.cursor == 0
        await pilot.press("slash", *"addmm", "enter")
        await until(pilot, lambda: rows.cursor != 0)
        assert "Addmm" in lines(screen, CompareList)[rows.cursor + 1]
        await pilot.press("full_stop")
        await pilot.press("comma", "y")
        await settle(pilot)
        pair = screen.pair
        await pilot.press("s")
        screen = await compared(pilot)
        assert screen.pair == (pair.b, pair.a)
        await pilot.press("s")
        await compared(pilot)
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: places(screen, files) == [1, 2])
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: places(screen, files) == [1, 1])
        await pilot.press("right_parenthesis")
        await until(pilot, lambda: places(screen, files) == [2, 2])
        await pilot.press("left_parenthesis")
        await until(pilot, lambda: places(screen, files) == [1, 1])
        await compared(pilot)
        await pilot.press("c")
        await until(pilot, lambda: places(screen, files) == [2, 2])
        await compared(pilot)
        await pilot.press("question_mark")
        await pilot.press("escape", "escape")
        assert not isinstance(pilot.app.screen, CompareScreen)


@pytest.mark.slow
async def test_a_side_opens_at_the_node_and_d_leads_back(files: list[Path]) -> None:
    async with comparing(files).run_test(size=(120, 40)) as pilot:
        for key, side in (("enter", 0), ("o", 1)):
            screen = await compared(pilot)
            assert screen.read is not None
            await pilot.press("n")
            row = screen.query_one(CompareList).cursor
            wanted = screen.read.beside[row][side]
            await pilot.press(key)
            app = pilot.app
            assert isinstance(app, AgvizApp)
            await until(pilot, lambda: app.screen is app.shown)  # noqa: B023
            await settle(pilot)
            view = app.shown.view
            assert view is not None
            assert view.recording.key == screen.pair[side]
            assert view.moment.node == wanted
            await pilot.press("d")
            again = await compared(pilot)
            assert again.pair == screen.pair
            assert again.query_one(CompareList).cursor == row
        await pilot.press("escape", "p")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        assert pilot.app.screen.query_one(FileList).line_count == len(files)


async def test_a_run_compares_with_the_marked_pass(files: list[Path]) -> None:
    app = AgvizApp(files[:1], make_driver=partial(RecordedDriver, begins_with_run=True))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(
            pilot, lambda: isinstance(app.screen, RunScreen) and app.screen.judged is not None
        )
        rows = app.screen.query_one(RunList)
        await pilot.press("g", "m", "G", "d")
        screen = await compared(pilot)
        assert places(screen, files) == [0, PASSES - 1]
        assert rows.line_count == PASSES


async def test_a_pass_is_compared_with_another_file(files: list[Path]) -> None:
    async with AgvizApp(files[:1]).run_test(size=(120, 40)) as pilot:
        shown = await settle(pilot)
        with Trace.open(files[0]) as a, Trace.open(files[1]) as b:
            own, others = ([task.id for task in trace.graph_tasks] for trace in (a, b))
        shown.carry_out(f"compare {files[1]} #{others[2]}")
        screen = await compared(pilot)
        assert [tuple(key) for key in screen.pair] == [(1, others[2]), (0, own[0])]
        await pilot.press("escape")
        shown.carry_out(f"compare #{own[3]}")
        await until(pilot, lambda: isinstance(pilot.app.screen, CompareScreen))
        screen = await compared(pilot)
        assert [tuple(key) for key in screen.pair] == [(0, own[3]), (0, own[0])]


class Sleeps(torch.autograd.Function):
    """Its backward takes as long as it is told."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        time.sleep(ctx.seconds)
        return gradients[0], None


async def test_what_took_longer_and_what_differs_by_little(tmp_path: Path) -> None:
    paths = [tmp_path / "a.agviz", tmp_path / "b.agviz"]
    for path, seconds, factor in zip(paths, (0.0, 0.3), (1.0, 1.0 + 1e-5), strict=True):
        weight = torch.ones(3, requires_grad=True)
        with agviz.trace(path=path):
            y = Sleeps.apply(weight * 2, seconds)  # type: ignore[no-untyped-call]
            (y.exp() * factor).sum().backward()
    with Trace.open(paths[0]) as a, Trace.open(paths[1]) as b:
        found = beside(a, b)
        (slowest, *_) = found.slower
        assert found.a.graph[found[slowest].a].name == "SleepsBackward"
        assert found.took_ns[1] >= 300_000_000  # the sleep, longer than a busy machine stops others
        said = list(beside_words.sentences(found))
        assert "SleepsBackward" in said[-1]
        assert len(found.differing) >= 3
        assert found.beyond(1e-7) == found.differing
        assert not found.beyond(1e-4)
    make_driver = partial(RecordedDriver, compares=True)
    async with AgvizApp(paths, make_driver=make_driver).run_test(size=(160, 40)) as pilot:
        screen = await compared(pilot)
        rows = screen.query_one(CompareList)
        assert "0 differ" not in str(rows.border_subtitle)
        await pilot.press("t")
        await pilot.pause(0.1)
        assert rows.cursor == slowest
        marked = re.search(r"▲([\d.]+) ms", plain(rows.line(slowest, 150)))
        assert marked
        assert float(marked[1]) >= 300  # the sleep, and what a busy machine adds to it
        await pilot.press("plus", "plus", "plus", "plus")
        await pilot.pause(0.1)
        assert "0 differ, " in str(rows.border_subtitle)
        assert "≈" in "".join(plain(rows.line(row, 150))[:3] for row in range(rows.line_count))
