"""The tree of modules and the screen of a flow: every key, at every size."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import agviz
from agviz.tui.app import AgvizApp
from agviz.tui.drivers import RecordedDriver
from agviz.tui.panels.flow import FlowHistory, FlowList, FlowSentence
from agviz.tui.panels.graph import GraphPanel
from agviz.tui.panels.modules import ModulesPanel
from agviz.tui.panels.queues import Queues
from agviz.tui.panels.source import SourcePanel
from agviz.tui.screens.answer import Answer
from agviz.tui.screens.flow import FlowScreen
from agviz.tui.screens.help import Help
from agviz.tui.screens.run import RunScreen
from agviz.tui.text import plain
from tests.slow_cases import slow_but
from tests.tui_support import begin, press, settle

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot
    from textual.screen import Screen

    from agviz.tui.panels.panel import Panel
    from agviz.tui.screen import TraceScreen

SIZES = [(80, 24), (120, 40), (200, 60)]
PASSES = 5


class Model(nn.Module):
    """Sigmoids without end."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(12))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.sigmoid(layer(x)) + (0.001 * x)
        return x


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = Model()
    found = tmp_path_factory.mktemp("flow") / "t.agviz"
    with agviz.trace(path=found):
        for step in range(PASSES):
            model.zero_grad()
            y = model(torch.randn(4, 6))
            loss = y.square().mean()
            if step == PASSES - 1:
                loss = loss + (y - y).abs().sum().sqrt()
            loss.backward()
    return found


def texts(panel: Panel) -> list[str]:
    width, height = panel.scrollable_content_region.size
    return [plain(panel.row(y, width)[0]) for y in range(height)]


async def modules(pilot: Pilot[None]) -> tuple[TraceScreen, ModulesPanel]:
    session = await begin(pilot)
    session.carry_out("task " + str(session.board.tasks[0][0].id))
    await settle(pilot)
    session.carry_out("modules")
    await settle(pilot)
    return session, session.query_one(ModulesPanel)


def over(pilot: Pilot[None], kind: type[Screen[Any]]) -> bool:
    """Whether such a screen is in front."""
    return isinstance(pilot.app.screen, kind)


async def flow(pilot: Pilot[None]) -> FlowScreen:
    for _ in range(100):
        await pilot.pause(0.05)
        screen = pilot.app.screen
        if isinstance(screen, FlowScreen) and screen.flow is not None:
            return screen
    raise AssertionError("no flow was shown")


@pytest.mark.parametrize("size", slow_but({"(80, 24)"}, SIZES))
async def test_modules_have_room_at_every_size(path: Path, size: tuple[int, int]) -> None:
    async with AgvizApp([path]).run_test(size=size) as pilot:
        _, panel = await modules(pilot)
        shown = texts(panel)
        assert "grad" in shown[0]
        assert "nodes" in shown[0]
        assert shown[1].split()[:2] == ["∅", "▾"]
        assert [line.split()[-0 or 0] for line in shown[2:4]] == ["▸", "∅"]
        assert all(len(line) <= panel.inner_width for line in shown)
        await press(pilot, "j", "j")
        assert "2 of 2 without gradient" in str(panel.border_subtitle)


async def test_modules_open_and_close_as_the_graph_folds(path: Path) -> None:
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        _, panel = await modules(pilot)
        closed = panel.line_count
        await press(pilot, "j", "space")
        assert panel.line_count == closed + 1
        assert " 0 … 11 " in texts(panel)[3]
        await press(pilot, "j", "right")
        assert panel.line_count == closed + 13
        await press(pilot, "right", "right", "right")
        assert panel.line_count == closed + 15
        assert panel.parameter == "layers.0.weight"
        assert "weight" in panel.copy_text()
        await press(pilot, "left", "left")
        assert panel.line_count == closed + 13
        await press(pilot, "E")
        everything = panel.line_count
        assert everything > closed + 13
        await press(pilot, "E")
        assert panel.line_count < closed
        await press(pilot, "E")
        assert panel.line_count == everything


async def test_a_module_selects_its_first_node_and_enter_goes_there(path: Path) -> None:
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        session, panel = await modules(pilot)
        await press(pilot, "j")
        view = session.view
        assert view is not None
        first = next(
            node
            for node in view.recording.columns.started
            if view.recording.columns.path_of(node)
            and view.recording.columns.path_of(node)[0] == "layers"
        )
        assert view.selected == first
        await press(pilot, "enter")
        assert isinstance(session.focused, GraphPanel)
        assert session.query_one(GraphPanel).node == first
        await press(pilot, "7", "s")
        assert "by time" in str(panel.border_subtitle)
        await press(pilot, "s", "s")
        assert "by" not in str(panel.border_subtitle)
        await press(pilot, "w")
        assert isinstance(pilot.app.screen, Answer)


@pytest.mark.parametrize(("size", "shared"), [((120, 40), 3), ((200, 60), 2)])
async def test_panels_that_share_a_place_take_turns(
    path: Path, size: tuple[int, int], shared: int
) -> None:
    async with AgvizApp([path]).run_test(size=size) as pilot:
        session = await begin(pilot)
        kinds = (Queues, SourcePanel, ModulesPanel) if shared == 3 else (Queues, ModulesPanel)
        seen = []
        for _ in range(shared + 1):
            seen.append([session.query_one(kind).display for kind in kinds].index(True))
            assert sum(session.query_one(kind).display for kind in kinds) == 1
            await press(pilot, "v")
        # on a CPU recording the queues hold little, and the panel after them comes first
        assert seen == [*range(1, shared), 0, 1]


@pytest.mark.parametrize("size", slow_but({"(80, 24)"}, SIZES))
async def test_a_flow_has_room_at_every_size(path: Path, size: tuple[int, int]) -> None:
    async with AgvizApp([path]).run_test(size=size) as pilot:
        session, _ = await modules(pilot)
        session.carry_out("flow layers.0.weight")
        screen = await flow(pilot)
        await settle(pilot)
        assert "falls" in "".join(texts(screen.query_one(FlowSentence)))
        rows = texts(screen.query_one(FlowList))
        assert "norm" in rows[0]
        assert any(("SigmoidBackward0" in row and "▉" in row) or "█" in row for row in rows)
        history = texts(screen.query_one(FlowHistory))
        assert history[0].strip().endswith("!")
        assert "not finite (!) in 1" in history[2]
        if size == (120, 40):
            assert len(rows) > 20


@pytest.mark.slow
async def test_every_key_of_a_flow(path: Path) -> None:
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        session, panel = await modules(pilot)
        await press(pilot, "j", "L")
        screen = await flow(pilot)
        assert screen.target.parameter.startswith("layers.")
        await press(pilot, "escape")
        session.carry_out("flow layers.0.weight")
        screen = await flow(pilot)
        await press(pilot, "left")
        first = screen.target.graph_task
        await press(pilot, "right")
        await flow(pilot)
        assert screen.target.graph_task > first
        await press(pilot, "left")
        await flow(pilot)
        assert screen.target.graph_task == first
        rows = screen.query_one(FlowList)
        assert screen.flow is not None
        meeting = next(at for at, step in enumerate(screen.flow.steps) if step.ways > 1)
        await press(pilot, "g", "space")
        rows.put_cursor(meeting)
        before = screen.flow
        await press(pilot, "space")
        assert screen.flow != before
        assert screen.flow.steps[rows.cursor].node == before.steps[meeting].node
        await press(pilot, "x", "y", "question_mark")
        assert over(pilot, Help)
        await press(pilot, "escape", "w")
        assert over(pilot, Answer)
        await press(pilot, "escape", "G", "enter")
        assert pilot.app.screen is session
        assert session.view is not None
        assert session.view.recording.node(session.view.selected or 0).parameter == (
            screen.target.parameter
        )
        await press(pilot, "2", "L")
        assert (await flow(pilot)).target.parameter == screen.target.parameter
        await press(pilot, "right")
        await flow(pilot)
        await press(pilot, "j", "enter")
        await settle(pilot)
        assert session.view.recording.key.graph_task > first
        await press(pilot, "L")
        await flow(pilot)
        await press(pilot, "L")
        assert pilot.app.screen is session
        assert panel.is_attached


async def test_of_a_node_that_is_no_parameter_there_is_no_history(path: Path) -> None:
    async with AgvizApp([path]).run_test(size=(80, 24)) as pilot:
        session, _ = await modules(pilot)
        session.carry_out("node AddmmBackward0")
        await settle(pilot)
        await press(pilot, "2", "L")
        screen = await flow(pilot)
        assert screen.flow is not None
        assert screen.flow.steps[-1].name == "AddmmBackward0"
        assert not screen.query_one(FlowHistory).display
        await press(pilot, "right")
        assert screen.target.parameter == ""


async def test_the_parameter_that_changed_most_is_followed_from_the_run(path: Path) -> None:
    app = AgvizApp([path], make_driver=partial(RecordedDriver, begins_with_run=True))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert over(pilot, RunScreen)
        await press(pilot, "L")
        screen = await flow(pilot)
        assert screen.flow is not None
        assert screen.flow.finding.sentence.startswith("Not finite from #")
        await press(pilot, "x", "enter")
        session = await settle(pilot)
        assert pilot.app.screen is session


async def test_without_modules_or_values_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, values="none"):
        torch.ones(3, requires_grad=True).square().sum().backward()
    async with AgvizApp([path]).run_test(size=(80, 24)) as pilot:
        session, panel = await modules(pilot)
        assert "provenance was not recorded" in texts(panel)[1]
        await press(pilot, "L")
        screen = await flow(pilot)
        assert "--values none" in "".join(texts(screen.query_one(FlowSentence)))
        await press(pilot, "space", "enter", "x", "escape")
        assert pilot.app.screen is session
