"""The panel of the source: what it says of each line is what torch does there."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

import agviz
from agviz.tui import editing
from agviz.tui.app import AgvizApp
from agviz.tui.panels.graph import GraphPanel
from agviz.tui.panels.queues import Queues
from agviz.tui.panels.source import SourcePanel
from agviz.tui.source_reading import LineReading
from tests import python_process
from tests.debugger_support import ENVIRONMENT
from tests.test_tui_terminal import TMUX, Terminal
from tests.tui_support import lines, press, record, settle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agviz.tui.screen import TraceScreen

SCRIPT = '''\
"""A program
of several lines."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(6, 6)

    def forward(self, x):
        gate = torch.sigmoid(self.one(x))
        return x * gate


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.sqrt().sum() if BAD else x.square().sum()


BAD = False
torch.manual_seed(0)
model = Model()
data = torch.rand(4, 6)


def run():
    loss = model(data)
    loss.backward()
    return loss


if __name__ == "__main__":
    run()
    BAD, data = True, torch.zeros(4, 6)
    run()
'''
GATE, PRODUCT, LOSS = 13, 14, 25


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of a program whose file is gone."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "agviz", "run", "-o", "t.agviz", "train.py"]
    python_process.run(command, check=True, cwd=folder)
    (folder / "train.py").unlink()
    return folder / "t.agviz"


async def opened(pilot: Any, place: int = 0) -> TraceScreen:
    """The screen on one of the passes, with the source in front."""
    session = await settle(pilot)
    await press(pilot, "escape")
    session.carry_out(f"task {session.board.tasks[0][place].id}")
    return await press(pilot, "6")


def figures(session: TraceScreen) -> Any:
    """What was read of the lines, by number."""
    assert session.view is not None
    assert session.view.figures is not None
    return {line: its for (_, line), its in session.view.figures.lines.items()}


async def test_norms_are_those_of_torch(recorded: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "here"}
    exec(compile(SCRIPT, "here.py", "exec"), namespace)  # noqa: S102 - our own
    loss = namespace["model"](namespace["data"])
    largest: dict[str, float] = defaultdict(float)
    seen: set[Any] = set()
    left = [loss.grad_fn]

    def hook_on(name: str) -> Any:
        def hook(outputs: Any, _inputs: Any) -> None:
            norms = [float(each.double().norm()) for each in outputs if each is not None]
            largest[name] = max([largest[name], *norms])

        return hook

    while left:
        node = left.pop()
        if node is not None and node not in seen and "AccumulateGrad" not in node.name():
            seen.add(node)
            node.register_hook(hook_on(node.name()))
            left += [each for each, _ in node.next_functions]
    loss.backward()

    async with AgvizApp([recorded]).run_test(size=(120, 40)) as pilot:
        found = figures(await opened(pilot))
        made = {
            GATE: ("SigmoidBackward0", "AddmmBackward0", "TBackward0"),
            PRODUCT: ("MulBackward0",),
            LOSS: ("PowBackward0", "SumBackward0"),
        }
        assert set(found) == set(made)
        for line, names in made.items():
            assert found[line].norm == pytest.approx(max(largest[name] for name in names), rel=1e-5)
            assert not found[line].is_bad


async def test_figures_are_those_of_the_trace(recorded: Path) -> None:
    with agviz.Trace.open(recorded) as trace:
        nodes = [trace.nodes(number) for number in (0, 1)]
    for number in (0, 1):
        async with AgvizApp([recorded]).run_test(size=(120, 40)) as pilot:
            found = figures(await opened(pilot, number))
        of: dict[int, list[Any]] = defaultdict(list)
        for node in nodes[number]:
            if node.frame is not None:
                of[node.frame.line].append(node)
        assert set(found) == set(of)
        for line, its in of.items():
            ran = sorted(its, key=lambda node: node.order or 0)
            assert found[line].nodes == tuple(node.index for node in ran)
            assert found[line].time_ns == sum(node.duration_ns for node in its)
            bad = [node for node in its if node.nonfinite and sum(node.nonfinite)]
            assert found[line].is_bad == bool(bad)
        assert any(each.is_bad for each in found.values()) == bool(number)


async def test_a_pass_is_read_in_pieces_with_the_same_result(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AgvizApp([recorded]).run_test(size=(120, 40)) as pilot:
        session = await opened(pilot, 1)
        whole, view = figures(session), session.view
        assert view is not None
    monkeypatch.setattr("agviz.analysis.pass_reading._PIECE", 3)
    with agviz.Trace.open(recorded) as trace:
        reading, steps = LineReading(trace, view.recording.key.graph_task), 1
        while not reading.read_on(trace, 0):
            steps += 1
        assert reading.is_of(trace)
    assert steps > 3
    assert {line: its for (_, line), its in reading.figures().items()} == whole


async def test_the_file_is_shown_though_it_is_gone(recorded: Path) -> None:
    async with AgvizApp([recorded]).run_test(size=(120, 40)) as pilot:
        session = await opened(pilot)
        session.carry_out("node SigmoidBackward0")
        await settle(pilot)
        panel = session.query_one(SourcePanel)
        here = next(line for line in lines(panel) if line.startswith("→"))
        assert "gate = torch.sigmoid" in here
        assert f" {GATE} " in here
        assert str(panel.border_subtitle) == f"train.py:{GATE} in forward"
        assert panel.line_count == len(SCRIPT.splitlines())
        assert panel.place == f"train.py:{GATE}"
        session.carry_out("node SumBackward0")
        await settle(pilot)
        assert panel.place == f"train.py:{LOSS}"


async def test_the_cursor_selects_the_nodes_of_its_line(recorded: Path) -> None:
    async with AgvizApp([recorded]).run_test(size=(120, 40)) as pilot:
        session = await opened(pilot)
        panel = session.query_one(SourcePanel)
        await press(pilot, "g")
        assert panel.cursor == 0
        for _ in range(PRODUCT - 1):
            await press(pilot, "j")
        its = figures(session)[PRODUCT].nodes
        assert session.view is not None
        assert session.view.selected == its[0]
        assert panel.cursor == PRODUCT - 1
        chosen = []
        for _ in its:
            await press(pilot, "enter")
            chosen.append(session.view.selected)
        assert chosen == [*its[1:], its[0]]
        await press(pilot, "j")
        assert panel.cursor == PRODUCT
        assert session.view.selected == its[0]


async def test_a_trace_without_sources_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    namespace: dict[str, Any] = {"__name__": "here"}
    exec(compile(SCRIPT, "cell 1", "exec"), namespace)  # noqa: S102 - our own
    with agviz.trace(path=path):
        namespace["run"]()
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        session = await opened(pilot)
        session.carry_out("node SigmoidBackward0")
        await settle(pilot)
        shown = lines(session.query_one(SourcePanel))
        assert any("does not hold the text" in line for line in shown)
        assert any(line.startswith("→") and f" {GATE} " in line for line in shown)
        assert figures(session)[GATE].norm is not None


async def test_nothing_is_known_without_provenance(tmp_path: Path) -> None:
    path = record(tmp_path / "t.agviz")
    async with AgvizApp([path]).run_test(size=(120, 40)) as pilot:
        session = await opened(pilot)
        panel = session.query_one(SourcePanel)
        assert any(SourcePanel.EMPTY in line for line in lines(panel))
        await press(pilot, "enter", "e", "j", "y")
        assert panel.place == ""


async def test_source_and_queues_share_a_place(recorded: Path) -> None:
    for size, both in (((120, 40), False), ((200, 60), True)):
        async with AgvizApp([recorded]).run_test(size=size) as pilot:
            session = await settle(pilot)
            assert shown(session) == (True, False)  # no device thread: queues hold little
            assert isinstance(session.focused, GraphPanel)
            assert session.view is not None
            assert session.view.figures is not None
            await press(pilot, *("v" if both else "vv"))
            assert shown(session) == (both, True)
            assert isinstance(session.focused, GraphPanel)
            await press(pilot, "5", *("v" if both else "vv"), "v")
            assert shown(session) == (both, True)
            assert session.query_one(Queues).has_focus


def shown(session: TraceScreen) -> tuple[bool, bool]:
    """Whether the source and the queues are."""
    return session.query_one(SourcePanel).display, session.query_one(Queues).display


async def test_no_file_is_read_while_nothing_of_it_is_seen(recorded: Path) -> None:
    async with AgvizApp([recorded]).run_test(size=(80, 24)) as pilot:
        session = await press(pilot, "n", "n", "n")
        assert session.view is not None
        assert session.view.figures is None
        assert session.view.text is None


def test_editors_are_given_the_line_as_they_take_it(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    assert editing.command("vim", path, 7) == ["vim", "+7", str(path)]
    assert editing.command("emacs -nw", path, 7) == ["emacs", "-nw", "+7", str(path)]
    assert editing.command("code --wait", path, 7) == ["code", "--wait", "-g", f"{path}:7"]
    assert editing.command("/usr/bin/hx", path, 7) == ["/usr/bin/hx", f"{path}:7"]


async def test_why_no_editor_opens_is_said(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    async with AgvizApp([recorded]).run_test(size=(120, 40)) as pilot:
        session = await opened(pilot)
        assert said(session, "No editor is chosen")
        monkeypatch.setenv("EDITOR", "true")
        assert said(session, "not on this machine")
        monkeypatch.chdir(recorded.parent)
        (recorded.parent / "train.py").write_text(SCRIPT, encoding="utf-8")
        try:
            assert said(session, "runs in a terminal")
        finally:
            (recorded.parent / "train.py").unlink()


def said(session: TraceScreen, words: str) -> bool:
    """Whether ``e`` says this."""
    assert session.view is not None
    found = editing.edit(session.app, "train.py", GATE, session.view.recording.path)
    return words in found


needs_tmux = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path / "tmux", 120, 40)
    opened.type(f"export XDG_STATE_HOME={tmp_path / 'state'}", "Enter")
    opened.type(f"export PYTHONPATH={ENVIRONMENT['PYTHONPATH']}; cd {tmp_path}; clear", "Enter")
    yield opened
    opened.run("kill-server")


@needs_tmux
def test_the_editor_opens_at_the_line(terminal: Terminal, recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    editor, given = tmp_path / "an editor", tmp_path / "given"
    editor.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {given}\nprintf here; read answer\n')
    editor.chmod(0o755)
    terminal.type(f"export VISUAL=\"'{editor}' -x\"; clear", "Enter")
    terminal.type(f"{sys.executable} -m agviz view {recorded}; echo left with $?", "Enter")
    terminal.wait_for(lambda screen: "Passes" in screen)
    terminal.type("Escape")
    terminal.wait_for(lambda screen: "Inspector" in screen)
    terminal.type("6")
    terminal.wait_for(lambda screen: "━ Source" in screen)
    terminal.type(":node Sigmoid", "Enter")
    terminal.wait_for(lambda screen: f"train.py:{GATE} in forward" in screen)
    terminal.type("e")
    terminal.wait_for(lambda screen: screen.strip().endswith("here"))
    assert given.read_text().splitlines() == ["-x", f"+{GATE}", str(tmp_path / "train.py")]
    terminal.type("Enter")
    terminal.wait_for(lambda screen: "━ Source" in screen)
    terminal.type("q")
    terminal.wait_for(lambda screen: "left with 0" in screen)


@pytest.mark.slow
@needs_tmux
def test_a_program_stops_at_a_line_that_was_marked(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    terminal.type(f"{sys.executable} -m agviz run --live train.py", "Enter")
    terminal.wait_for(lambda screen: "before SumBackward0" in screen)
    terminal.type("6")
    terminal.wait_for(lambda screen: f"→   {LOSS}" in screen)
    terminal.type("g", *["j"] * (GATE - 1), "b")
    terminal.wait_for(lambda screen: f"◆  {GATE}" in screen)
    terminal.type("c")
    screen = terminal.wait_for(lambda screen: f"train.py:{GATE} · now" in screen)
    assert f"→◆  {GATE}" in screen
    terminal.type("b")
    terminal.wait_for(lambda screen: "◆" not in screen)
