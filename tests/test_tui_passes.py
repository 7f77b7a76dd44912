"""A recording of many passes: where it opens, and keys that go from one pass to the next."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from textual.widgets import Static

from agviz.analysis.outcome import Outcome
from agviz.analysis.pass_marks import marks
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus
from agviz.tui.app import AgvizApp
from agviz.tui.model import State
from agviz.tui.panels.run import RunList
from agviz.tui.screen import TraceScreen
from agviz.tui.screens.answer import Answer
from agviz.tui.screens.run import RunScreen
from agviz.tui.seeking import Search, Sought
from agviz.tui.title import Status, Title
from agviz_engine.events import NodeFailed, NodeStarted, NonFiniteChecked
from tests import python_process
from tests.tui_support import lines, press, record, settle, write

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot

    from agviz.analysis.verdict import Verdict
    from agviz.tui.model import View

PASSES = 40
BAD = 30

PROGRAM = """
import os
import signal
import sys
import time

import torch
from torch import nn

how, when = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
step = 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        hidden = self.first(x).relu()
        return hidden, self.last(hidden)


model = Net()


def on_leaf(grad):
    if step == when and how == "leaf":
        os._exit(3)


model.first.weight.register_hook(on_leaf)


def hook(grad):
    if step == when and how == "raise":
        raise RuntimeError("the hook has had enough")
    if step == when and how == "exit":
        os._exit(3)


for step in range(40):
    hidden, out = model(torch.randn(3, 4))
    hidden.register_hook(hook)
    loss = out.square().mean()
    if how == "loss" and step == when:
        loss = nn.functional.cross_entropy(out, torch.full((3,), -100))
    if how == "nan" and step >= when:
        loss = loss + (hidden * 0).sqrt().sum() * 0
    try:
        loss.backward()
    except RuntimeError:
        pass
    model.zero_grad()
    if step == when and how == "kill":
        time.sleep(2)  # so that the file holds the pass
        os.kill(os.getpid(), signal.SIGKILL)
    if step == when and how == "refused":
        try:
            torch.ones(3).sum().backward()
        except RuntimeError:
            pass
"""


_ENDS = {"exit", "leaf", "kill"}
"""What the program does not survive."""


def trained(folder: Path, how: str, when: int = BAD) -> Path:
    """A trace of a small training; at a step something goes wrong."""
    (folder / "train.py").write_text(PROGRAM)
    path = folder / f"{how}.agviz"
    command = [sys.executable, "-m", "agviz", "run", "-o", str(path), "train.py", how, str(when)]
    python_process.run(command, cwd=folder, check=how not in _ENDS)
    return path


@pytest.fixture(scope="module")
def nan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("nan"), "nan")


@pytest.fixture(scope="module")
def fine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("fine"), "nothing")


def view_of(session: TraceScreen) -> View:
    assert session.view is not None
    return session.view


def at(session: TraceScreen) -> tuple[int, int]:
    """Graph task and position."""
    view = view_of(session)
    return view.recording.key.graph_task, view.moment.position


def said(pilot: Pilot[None]) -> str:
    return " ".join(each.message for each in pilot.app._notifications)


def status(session: TraceScreen) -> str:
    return session.query_one(Status).render().plain


def title(session: TraceScreen) -> str:
    return session.query_one(Title).render().plain


async def choose(pilot: Pilot[None], number: int) -> TraceScreen:
    """Open a pass at its beginning."""
    session = await settle(pilot)
    session.carry_out(f"task {number}")
    return await settle(pilot)


async def test_it_opens_at_the_first_non_finite_gradient(nan: Path) -> None:
    with Trace.open(nan) as trace:
        first = trace.first_nonfinite()
    assert first is not None
    assert first.graph_task == BAD
    async with AgvizApp([nan]).run_test(size=(120, 40)) as pilot:
        view = view_of(session := await settle(pilot))
        assert view.recording.key.graph_task == BAD
        assert view.moment.event is not None
        assert view.moment.event.seq == first.seq
        assert view.selected == first.node
        assert view.moment.node_state(first.node) is State.NONFINITE
        assert f"backward #{BAD} of {PASSES}" in title(session)
        assert "opened at the first non-finite gradient" in status(session)
        session = await press(pilot, "n")
        assert "opened" not in status(session)


async def test_it_opens_at_the_node_that_failed(tmp_path: Path) -> None:
    path = trained(tmp_path, "raise", 12)
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        view = view_of(session := await settle(pilot))
        assert view.recording.key.graph_task == 12
        assert isinstance(view.moment.event, NodeFailed)
        assert view.selected == view.moment.event.node
        assert "opened at the first failure" in status(session)
        session = await press(pilot, "w")
        answer = pilot.app.screen
        assert isinstance(answer, Answer)
        assert answer.answer.verdicts[0].outcome is Outcome.FOUND
        assert "backward pass 12 failed" in answer.answer.verdicts[0].heading


async def test_it_opens_where_the_recording_was_cut_off(tmp_path: Path) -> None:
    path = trained(tmp_path, "exit", 12)
    with Trace.open(path) as trace:
        (cut,) = (row.id for row in trace.graph_tasks if row.status is GraphTaskStatus.CUT)
        end = trace.event_count(cut)
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        session = await settle(pilot)
        assert at(session) == (cut, end)
        assert "opened where the recording was cut off" in status(session)
        await press(pilot, "p")
        assert "✗" in line_of(pilot, cut)


async def test_it_opens_where_the_loss_is_not_finite(tmp_path: Path) -> None:
    path = trained(tmp_path, "loss", 12)
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        session = await settle(pilot)
        assert view_of(session).recording.key.graph_task == 12
        assert "opened where the loss is not finite" in status(session)
        await press(pilot, "w")
        answer = pilot.app.screen
        assert isinstance(answer, Answer)
        assert answer.answer.verdicts[0].outcome is Outcome.FOUND
        await press(pilot, "escape", "p")
        assert "! " in line_of(pilot, 12)
        await press(pilot, "escape")
        await choose(pilot, 3)
        assert at(await press(pilot, "c")) == (12, 0)


async def test_the_worst_of_several_ranks_is_opened(nan: Path, fine: Path) -> None:
    async with AgvizApp([fine, nan]).run_test(size=(120, 40)) as pilot:
        assert view_of(await settle(pilot)).recording.key == (1, BAD)


@pytest.mark.slow
async def test_x_goes_through_the_passes_that_have_a_non_finite_gradient(nan: Path) -> None:
    async with AgvizApp([nan]).run_test(size=(120, 40), notifications=True) as pilot:
        await choose(pilot, 3)
        for number in [*range(BAD, PASSES), BAD]:
            session = await press(pilot, "x")
            view = view_of(session)
            assert view.recording.key.graph_task == number
            assert isinstance(view.moment.event, NonFiniteChecked)
            assert view.moment.event.seq == view.recording.first_nonfinite
        assert f"backward #{BAD}, number 1 of {PASSES - BAD} with any; x goes on" in said(pilot)
        await press(pilot, "n", "n")
        assert at(await press(pilot, "x"))[0] == BAD


@pytest.mark.slow
async def test_x_speaks_of_all_passes(fine: Path, tmp_path: Path) -> None:
    async with AgvizApp([fine]).run_test(size=(120, 40), notifications=True) as pilot:
        assert at(await press(pilot, "x")) == (0, 0)
        assert said(pilot) == f"Every gradient that was checked is finite, in all {PASSES} passes."
    path = trained(tmp_path, "raise", 12)
    async with AgvizApp([path]).run_test(size=(120, 40), notifications=True) as pilot:
        await press(pilot, "x")
        assert f"Pass 12 of {PASSES} failed: c and C go there." in said(pilot)


@pytest.mark.slow
async def test_c_goes_on_to_what_went_wrong_in_any_pass(tmp_path: Path, nan: Path) -> None:
    path = trained(tmp_path, "raise", 12)
    async with AgvizApp([path]).run_test(size=(120, 40), notifications=True) as pilot:
        await choose(pilot, 3)
        session = await press(pilot, "c")
        assert view_of(session).recording.key.graph_task == 12
        assert isinstance(view_of(session).moment.event, NodeFailed)
        session = await press(pilot, "c")
        number, position = at(session)
        assert (number, position) == (39, view_of(session).recording.event_count)
        assert "the end of the last pass" in said(pilot)
        session = await press(pilot, "C")
        assert isinstance(view_of(session).moment.event, NodeFailed)
        assert at(await press(pilot, "C")) == (0, 0)
        assert "where the first pass begins" in said(pilot)
    async with AgvizApp([nan]).run_test(size=(120, 40)) as pilot:
        await choose(pilot, 0)
        passes = []
        for _ in range(12):
            view = view_of(await press(pilot, "c"))
            assert isinstance(view.moment.event, NonFiniteChecked)
            passes.append(view.recording.key.graph_task)
        assert passes[0] == BAD
        assert passes == sorted(passes)
        back = [view_of(await press(pilot, "C")).recording.key.graph_task for _ in range(11)]
        assert [*reversed(back), passes[-1]] == passes


async def test_c_finds_a_pass_that_was_cut_off(tmp_path: Path) -> None:
    path = trained(tmp_path, "exit", 12)
    with Trace.open(path) as trace:
        (cut,) = marks(trace)
        end = trace.event_count(cut)
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        await choose(pilot, 1)
        assert at(await press(pilot, "c")) == (cut, end)
        assert at(await press(pilot, "C")) == (0, 0)


async def test_n_and_s_go_on_in_the_next_pass_and_back(fine: Path) -> None:
    async with AgvizApp([fine]).run_test(size=(120, 40), notifications=True) as pilot:
        await choose(pilot, 7)
        session = await press(pilot, "S")
        end = view_of(session).recording.event_count
        assert at(session) == (6, end)
        assert at(await press(pilot, "s")) == (7, 1)
        assert at(await press(pilot, "S", "S")) == (6, end)
        session = await press(pilot, "n")
        assert at(session)[0] == 7
        assert isinstance(view_of(session).moment.event, NodeStarted)
        assert at(await press(pilot, "N")) == (7, 0)
        assert at(await press(pilot, "N")) == (6, end)
        session = await press(pilot, "N")
        assert at(session)[0] == 6
        assert isinstance(view_of(session).moment.event, NodeStarted)
        assert f"backward #6 of {PASSES}" in title(session)
        await choose(pilot, 0)
        await press(pilot, "N")
        assert said(pilot).endswith("The playhead is at the beginning.")
        session = await choose(pilot, PASSES - 1)
        await press(pilot, *("n" * (view_of(session).recording.nodes + 2)))
        assert said(pilot).endswith("The playhead is at the end.")


async def test_many_keys_at_once_cross_several_passes(fine: Path) -> None:
    async with AgvizApp([fine]).run_test(size=(120, 40)) as pilot:
        session = await settle(pilot)
        nodes = view_of(session).recording.nodes
        for _ in range(3 * (nodes + 1)):
            session.driver.node(1)
        session = await settle(pilot)
        number, position = at(session)
        assert (number, position) == (2, view_of(session).recording.event_count)


async def test_w_speaks_of_this_pass_and_names_others(nan: Path, tmp_path: Path) -> None:
    async with AgvizApp([nan]).run_test(size=(120, 40)) as pilot:
        await choose(pilot, 12)
        await press(pilot, "w")
        answer = pilot.app.screen
        assert isinstance(answer, Answer)
        (verdict,) = answer.answer.verdicts
        assert verdict.outcome is Outcome.NOTHING_UNUSUAL
        assert verdict.heading == "nothing unusual in backward pass 12"
        others = f"Gradients are not finite in pass {BAD} of {PASSES} and 9 others: x goes there."
        assert answer.answer.others == others
        await press(pilot, "escape", "x", "w")
        answer = pilot.app.screen
        assert isinstance(answer, Answer)
        assert answer.answer.verdicts[0].outcome is Outcome.FOUND
        await press(pilot, "y")
        assert answer.answer.verdicts[0].heading in pilot.app.clipboard


async def asked(pilot: Pilot[None], parameter: str = "") -> tuple[Verdict, ...]:
    """What ``:why`` says."""
    session = await settle(pilot)
    session.carry_out(f"why {parameter}")
    await settle(pilot)
    answer = pilot.app.screen
    assert isinstance(answer, Answer)
    return answer.answer.verdicts


@pytest.mark.slow
async def test_w_at_the_parameter_whose_hook_holds_the_pass_says_so(tmp_path: Path) -> None:
    path = trained(tmp_path, "leaf", 12)
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        session = await settle(pilot)
        view = view_of(session)
        assert view.selected is not None
        assert view.recording.node(view.selected).parameter == "first.weight"
        held, row = await asked(pilot, "first.weight")
    assert held.heading == "backward pass 12 was under way when the program called os._exit"
    assert "on_leaf" in held.paragraph
    assert row.heading.endswith(
        "first.weight has no gradient (None): the backward pass ended while its AccumulateGrad ran"
        " (cut)"
    )
    assert "agviz explain" not in row.paragraph


@pytest.mark.slow
async def test_w_at_a_parameter_says_why_the_pass_failed_before_it(tmp_path: Path) -> None:
    path = trained(tmp_path, "raise", 12)
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        failed, row = await asked(pilot, "first.weight")
    assert "backward pass 12 failed" in failed.heading
    assert "the hook has had enough" in failed.paragraph
    assert "the backward pass ended before it came there" in row.heading


@pytest.mark.slow
async def test_a_recording_that_was_cut_off_behind_its_passes(tmp_path: Path) -> None:
    path = trained(tmp_path, "kill", 12)
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        session = await settle(pilot)
        number, position = at(session)
        assert (number, position) == (12, view_of(session).recording.event_count)
        assert "opened at the end: cut off behind it" in status(session)
        cut, fine = await asked(pilot)
    with Trace.open(path) as trace:
        assert [cut] == list(verdicts(trace))
    assert cut.outcome is Outcome.FOUND
    assert fine.heading == "nothing unusual in backward pass 12"


@pytest.mark.slow
async def test_w_tells_of_a_call_that_torch_refused_between_passes(tmp_path: Path) -> None:
    path = trained(tmp_path, "refused", 12)
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        refusal, fine = await asked(pilot)
    assert refusal.outcome is Outcome.FOUND
    assert "no graph" in refusal.heading
    assert fine.outcome is Outcome.NOTHING_UNUSUAL


async def test_w_never_ticks_what_was_not_looked_at(tmp_path: Path) -> None:
    path = record(tmp_path / "unmeasured.agviz", graph_tasks=2)
    with Trace.open(path) as trace:
        assert trace.meta.values == "none"
        is_checked = trace.has_checks()
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        await press(pilot, "w")
        answer = pilot.app.screen
        assert isinstance(answer, Answer)
        expected = Outcome.NOTHING_UNUSUAL if is_checked else Outcome.CANT_TELL
        assert answer.answer.verdicts[0].outcome is expected


async def test_w_does_not_tick_a_parameter_whose_gradient_is_nan(nan: Path) -> None:
    async with AgvizApp([nan]).run_test(size=(120, 40)) as pilot:
        for number, outcome in ((BAD, Outcome.FOUND), (12, Outcome.NOTHING_UNUSUAL)):
            session = await choose(pilot, number)
            session.carry_out("why first.weight")
            await settle(pilot)
            answer = pilot.app.screen
            assert isinstance(answer, Answer)
            (verdict,) = answer.answer.verdicts
            assert verdict.outcome is outcome
            assert verdict.heading.startswith(
                f"in backward pass {number}, first.weight has a gradient"
            )
            await press(pilot, "escape")


async def test_a_search_goes_on_in_the_next_pass(nan: Path) -> None:
    async with AgvizApp([nan]).run_test(size=(120, 40), notifications=True) as pilot:
        await choose(pilot, 3)
        await press(pilot, "slash")
        await write(pilot, "AddmmBackward0")
        session = await press(pilot, "enter")
        assert at(session) == (3, 0)
        assert "1 of 2 matches in this pass" in status(session)
        session = await press(pilot, "full_stop")
        assert at(session) == (3, 0)
        assert "2 of 2 matches in this pass" in status(session)
        session = await press(pilot, "full_stop")
        view = view_of(session)
        assert view.recording.key.graph_task == 4
        assert view.selected is not None
        assert view.recording.node(view.selected).short_name == "AddmmBackward0"
        assert isinstance(view.moment.event, NodeStarted)
        assert view.moment.event.node == view.selected
        assert "1 of 2 matches in this pass" in status(session)
        session = await press(pilot, "comma")
        assert at(session)[0] == 3
        assert "2 of 2 matches in this pass" in status(session)
        await press(pilot, "slash")
        await write(pilot, "SqrtBackward0")
        session = await press(pilot, "enter")
        assert at(session)[0] == BAD
        assert "1 of 1 match in this pass" in status(session)
        await choose(pilot, 5)
        session = await press(pilot, "comma")  # behind the first pass comes the last
        assert at(session)[0] == PASSES - 1
        await press(pilot, "slash")
        await write(pilot, "NoSuchNode")
        session = await press(pilot, "enter")
        assert at(session)[0] == PASSES - 1
        assert f"No node matches “NoSuchNode” in any of {PASSES} passes." in said(pilot)


async def test_a_search_is_told_of_and_left(fine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agviz.tui.seeking._NODES", 1)
    monkeypatch.setattr("agviz.tui.reader_thread._BETWEEN_NEWS_S", -1.0)
    looked: list[int] = []
    told: list[str] = []
    more = Search.more

    async with AgvizApp([fine]).run_test(size=(120, 40), notifications=True) as pilot:
        session = await settle(pilot)

        def slow(search: Search, trace: Trace) -> object:
            found = more(search, trace)
            looked.append(search.at)
            if len(looked) == 5:  # the user types escape while it goes on
                session.reader.stop_search()
            return found

        monkeypatch.setattr(Search, "more", slow)
        hear = TraceScreen.on_sought

        def listen(self: TraceScreen, message: Sought) -> None:
            told.append(message.progress)
            hear(self, message)

        monkeypatch.setattr(TraceScreen, "on_sought", listen)
        await press(pilot, "slash")
        await write(pilot, "NoSuchNode")
        session = await press(pilot, "enter")
        assert looked == [1, 2, 3, 4, 5]
        assert f"searching pass 1 of {PASSES} …" in told
        assert view_of(session).busy == ""
        assert "No node matches" not in said(pilot)
        assert at(session) == (0, 0)


async def test_escape_leaves_a_search(fine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []
    async with AgvizApp([fine]).run_test(size=(120, 40)) as pilot:
        session = await settle(pilot)
        monkeypatch.setattr(session.reader, "stop_search", lambda: stopped.append(True))
        await press(pilot, "escape")
        assert stopped == [True]


def line_of(pilot: Pilot[None], number: int) -> str:
    """What the list of passes says of one."""
    screen = pilot.app.screen
    assert isinstance(screen, RunScreen)
    shown = lines(screen.query_one(RunList))
    return next(line for line in shown[1:] if f" {number} " in line)


def numbers(pilot: Pilot[None]) -> list[int]:
    """The passes that are listed, in order."""
    rows = pilot.app.screen.query_one(RunList)
    assert rows._table is not None
    return [rows._table[place].task.id for place in rows._places]


async def test_the_list_marks_passes(nan: Path) -> None:
    async with AgvizApp([nan]).run_test(size=(120, 60)) as pilot:
        session = await press(pilot, "p")
        assert "! " in line_of(pilot, BAD)
        assert "✓" in line_of(pilot, BAD - 1)
        assert numbers(pilot) == [*range(PASSES)]
        await press(pilot, "s")
        assert numbers(pilot) == [*range(BAD, PASSES), *range(BAD)]
        await press(pilot, "j", "enter")
        assert at(session)[0] == BAD + 1
        view = view_of(session)
        assert view.moment.event is not None
        assert view.moment.event.seq == view.recording.first_nonfinite


@pytest.mark.slow
async def test_the_list_is_sorted_by_what_took_longest_and_was_largest(nan: Path) -> None:
    with Trace.open(nan) as trace:
        rows = trace.graph_tasks
    async with AgvizApp([nan]).run_test(size=(120, 60)) as pilot:
        await press(pilot, "p", "s", "s")
        took = [rows[number].end_ns - rows[number].begin_ns for number in numbers(pilot)]  # type: ignore[operator]
        assert took == sorted(took, reverse=True)
        await press(pilot, *"ssss")
        nodes = [rows[number].nodes for number in numbers(pilot)]
        assert nodes == sorted(nodes, reverse=True)
        await press(pilot, "s")
        assert numbers(pilot) == [*range(PASSES)]


async def test_the_list_is_searched(nan: Path) -> None:
    async with AgvizApp([nan]).run_test(size=(120, 60)) as pilot:
        session = await press(pilot, "p", "slash")
        await write(pilot, "finite")
        assert numbers(pilot) == [*range(BAD, PASSES)]
        await press(pilot, "enter", "g", "j", "enter")
        assert at(session)[0] == BAD + 1
        await press(pilot, "p", "slash")
        await write(pilot, "#7")
        assert numbers(pilot) == [7]
        await press(pilot, "escape")
        assert numbers(pilot) == [*range(PASSES)]
        await press(pilot, "escape")
        assert pilot.app.screen is session


def refused(folder: Path) -> Path:
    """A trace of a program whose only call torch refused."""
    (folder / "off.py").write_text(
        "import torch\nx = torch.ones(3, requires_grad=True)\n"
        "torch.set_grad_enabled(False)\nx.sum().backward()\n"
    )
    path = folder / "off.agviz"
    command = [sys.executable, "-m", "agviz", "run", "-o", str(path), "off.py"]
    python_process.run(command, cwd=folder)
    return path


async def test_a_call_that_torch_refused_is_told_where_there_is_no_pass(tmp_path: Path) -> None:
    path = refused(tmp_path)
    with Trace.open(path) as trace:
        (verdict,) = verdicts(trace)
    assert verdict.outcome is Outcome.FOUND
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        session = await settle(pilot)
        told = str(session.query_one("#notice", Static).render())
        assert f"✗ {verdict.heading}" in told
        assert verdict.paragraph in told
