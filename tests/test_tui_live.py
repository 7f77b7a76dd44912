"""The terminal UI on programs that run, in a real terminal: keys typed, the screen read."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import torch

from agviz.debugger.breakpoint_file import BreakpointFile
from agviz.debugger.breakpoints import parse
from agviz.tui.keys import binding_ids
from agviz.tui.panels.output import ANSWER, STDERR, STDOUT, Output
from tests.debugger_support import (
    CHAIN,
    CHECKPOINTED,
    ENVIRONMENT,
    FOUR_DEVICES,
    PLANTED,
    TRAIN,
    is_running,
    natively,
    result,
    save,
    wait_until,
)
from tests.test_tui_terminal import TMUX, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

needs_tmux = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path / "tmux", 80, 24)
    for name in ("PYTHONPATH", "XDG_RUNTIME_DIR"):
        value = ENVIRONMENT.get(name, "") if name == "PYTHONPATH" else tmp_path / name.lower()
        opened.type(f"export {name}={value}", "Enter")
    (tmp_path / "xdg_runtime_dir").mkdir()
    # Whoever stops all processes for a while shall not make the shell take the terminal back.
    opened.type(f"set +m; cd {tmp_path}; clear", "Enter")
    yield opened
    opened.run("kill-server")


def start(terminal: Terminal, folder: Path, text: str) -> None:
    """Open the debugger on a program and wait until it stands at its first node."""
    save(folder, text)
    command = f"{sys.executable} -m agviz run --live -o trace.agviz program.py"
    terminal.type(f"{command}; echo left with $?", "Enter")
    # Until the file is read up to the stop, the line says that the past is looked at.
    terminal.wait_for(
        lambda screen: "■ T" in screen and "first backward" in screen and "· now" in screen
    )


def child_of(terminal: Terminal) -> tuple[int, int]:
    """Process of the viewer, and of the program it debugs."""
    shell = terminal.run("display-message", "-p", "-t", "agviz", "#{pane_pid}").strip()
    found: list[int] = []
    for parent in (shell, None):
        of = parent or str(found[-1])
        listed = subprocess.run(
            ["pgrep", "-P", of],  # noqa: S607 - wherever procps is
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        found.append(int(listed[0]))
    return found[0], found[1]


@needs_tmux
@pytest.mark.slow
def test_a_program_is_stepped_through_changed_and_left(terminal: Terminal, tmp_path: Path) -> None:
    start(terminal, tmp_path, TRAIN)
    screen = terminal.screen()
    assert "SumBackward0 · first backward · program.py:10 · now" in screen
    assert max(map(len, screen.splitlines())) <= 80

    terminal.type("n")
    terminal.wait_for(lambda screen: "before PowBackward0" in screen)
    terminal.type("n")
    terminal.wait_for(lambda screen: "before AddmmBackward0" in screen)
    terminal.type("N")
    terminal.wait_for(lambda screen: "started #2 PowBackward0" in screen)
    terminal.wait_for(lambda screen: "you look at the past" in screen)
    terminal.type("c")
    terminal.wait_for(lambda screen: "AddmmBackward0" in screen and "· now" in screen)
    terminal.type("s")
    terminal.wait_for(lambda screen: "■ T0 check: " in screen)

    terminal.type(":break parameter=0.weight if norm > 0", "Enter")
    terminal.wait_for(lambda screen: "Breakpoint 1: parameter=0.weight" in screen)
    kept = BreakpointFile(tmp_path, str(tmp_path / "program.py"))
    wait_until(lambda: bool(kept.load()))
    assert [each.describe() for each in kept.load()] == ["parameter=0.weight if norm > 0"]
    terminal.type("c")
    terminal.wait_for(lambda screen: "before AccumulateGrad · 0.weight · breakpoint 1" in screen)
    terminal.type(":print input 0 [0]", "Enter")
    terminal.wait_for(lambda screen: "= [4] float32" in screen)
    terminal.type("!")
    terminal.wait_for(lambda screen: "Python at this node" in screen)
    terminal.type("module, 6 * 7", "Enter")
    terminal.wait_for(lambda screen: "(Linear(in_features=4, out_features=8" in screen)
    terminal.wait_for(lambda screen: "Python at this node" in screen)
    terminal.type("Escape")
    terminal.wait_for(lambda screen: "Python at this node" not in screen)
    terminal.type("B")
    terminal.wait_for(lambda screen: "1 hit" in screen)
    terminal.type("Space")
    terminal.wait_for(lambda screen: "◇   1" in screen)
    terminal.type("d")
    terminal.wait_for(lambda screen: "There are none" in screen)
    terminal.type("Escape")
    terminal.wait_for(lambda screen: "There are none" not in screen)
    terminal.type("c")
    terminal.wait_for(lambda screen: "has ended with exit code 0" in screen)
    terminal.type("8")
    terminal.wait_for(lambda screen: "done" in screen)
    terminal.type("q")
    terminal.wait_for(lambda screen: "left with 0" in screen)
    assert all(map(torch.equal, result(tmp_path), natively(TRAIN)))


@needs_tmux
@pytest.mark.slow
def test_a_loop_is_typed_at_the_prompt_and_completed(terminal: Terminal, tmp_path: Path) -> None:
    start(terminal, tmp_path, TRAIN)
    terminal.type("!for i in range(3): print(i * 11)", "Enter")
    terminal.wait_for(lambda screen: "! for i in range(3): print(i * 11)" in screen)
    terminal.type("Enter")
    terminal.wait_for(lambda screen: "= 11" in screen and "= 22" in screen)
    terminal.type("gra", "Tab")
    terminal.wait_for(lambda screen: re.search(r"^ ! grads\b", screen, re.MULTILINE) is not None)
    terminal.type("Enter")
    terminal.wait_for(lambda screen: "= [tensor(1.)]" in screen)
    pasted = "def n(q):\n    c = q + 1\n\n    return c\n\nn(41)\nn(42)\n"
    terminal.run("set-buffer", pasted)
    terminal.run("paste-buffer", "-p", "-t", "agviz")
    terminal.wait_for(lambda screen: " …     return c" in screen)
    terminal.type("Enter")
    terminal.wait_for(lambda screen: "= 42" in screen and "= 43" in screen)
    assert "SumBackward0 · first backward" in terminal.screen(), "no letter was a hotkey"
    terminal.type("Escape")
    terminal.wait_for(lambda screen: "Python at this node" not in screen)
    terminal.type("q")
    terminal.wait_for(lambda screen: "End the program" in screen)
    terminal.type("e")
    terminal.wait_for(lambda screen: "left with" in screen)


@needs_tmux
@pytest.mark.slow
def test_breakpoints_of_another_program_stop_nothing(terminal: Terminal, tmp_path: Path) -> None:
    BreakpointFile(tmp_path, str(tmp_path / "other.py")).save([parse("Tanh")])
    BreakpointFile(tmp_path, str(tmp_path / "program.py")).save([parse("parameter=0.weight")])
    start(terminal, tmp_path, TRAIN)
    screen = terminal.screen()
    assert "1 breakpoint loaded from" in screen
    assert "parameter=0.weight" in screen
    terminal.type("c")
    terminal.wait_for(lambda screen: "before AccumulateGrad · 0.weight · breakpoint 1" in screen)


@needs_tmux
@pytest.mark.slow
@pytest.mark.parametrize("text", [FOUR_DEVICES, CHECKPOINTED], ids=["devices", "reentrant"])
def test_a_program_runs_on_without_the_debugger(
    terminal: Terminal, tmp_path: Path, text: str
) -> None:
    start(terminal, tmp_path, text)
    for _ in range(4):
        terminal.type("n")
        terminal.wait_for(lambda screen: "· step ·" in screen)
    terminal.type("q")
    terminal.wait_for(lambda screen: "Let the program run on" in screen)
    terminal.type("d")
    screen = terminal.wait_for(lambda screen: re.search(r"left with \d", screen) is not None)
    assert "done" in screen
    assert "left with 0" in screen
    assert all(map(torch.equal, result(tmp_path), natively(text)))


@needs_tmux
@pytest.mark.slow
def test_nothing_is_left_where_the_debugger_ends(terminal: Terminal, tmp_path: Path) -> None:
    endless = TRAIN.replace("range(3)", "range(10**9)")
    start(terminal, tmp_path, endless)
    _, program = child_of(terminal)
    terminal.type("c")
    terminal.wait_for(lambda screen: "The program runs" in screen)
    terminal.type("C-c")
    terminal.wait_for(lambda screen: "· pause ·" in screen)
    terminal.type("q")
    terminal.wait_for(lambda screen: "End the program" in screen)
    terminal.type("e")
    terminal.wait_for(lambda screen: "left with 143" in screen)
    assert not is_running(program)

    terminal.type("clear", "Enter")
    start(terminal, tmp_path, endless)
    viewer, program = child_of(terminal)
    os.kill(viewer, signal.SIGTERM)
    terminal.wait_for(lambda screen: "left with 143" in screen)
    assert not is_running(program)
    terminal.type("echo still $((40 + 2))", "Enter")
    terminal.wait_for(lambda screen: "still 42" in screen)

    terminal.type("clear", "Enter")
    start(terminal, tmp_path, endless)
    viewer, program = child_of(terminal)
    terminal.run("new-session", "-d", "-s", "another")
    terminal.run("kill-pane", "-t", "agviz")  # the terminal is closed
    wait_until(lambda: not is_running(viewer) and not is_running(program))


@needs_tmux
@pytest.mark.slow
def test_the_program_goes_on_where_the_viewer_is_killed(terminal: Terminal, tmp_path: Path) -> None:
    start(terminal, tmp_path, TRAIN)
    viewer, program = child_of(terminal)
    os.kill(viewer, signal.SIGKILL)
    wait_until(lambda: not is_running(program))
    assert all(map(torch.equal, result(tmp_path), natively(TRAIN)))


@needs_tmux
@pytest.mark.slow
def test_a_running_program_is_attached_to_and_left(terminal: Terminal, tmp_path: Path) -> None:
    save(tmp_path, TRAIN.replace("range(3)", "range(10**9)"))
    program = subprocess.Popen(
        [sys.executable, "-m", "agviz", "run", "--listen", "-o", "trace.agviz", "program.py"],
        cwd=tmp_path,
        env={**ENVIRONMENT, "XDG_RUNTIME_DIR": str(tmp_path / "xdg_runtime_dir")},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stderr is not None
    with program, program.stderr:
        try:
            program.stderr.readline()
            command = f"{sys.executable} -m agviz attach {program.pid}; echo left with $?"
            terminal.type(command, "Enter")
            terminal.wait_for(lambda screen: "· pause ·" in screen)
            terminal.type("n")
            terminal.wait_for(lambda screen: "· step ·" in screen)
            terminal.type("q")
            screen = terminal.wait_for(lambda screen: "Let the program run on" in screen)
            assert "End the program" not in screen
            terminal.type("d")
            terminal.wait_for(lambda screen: "left with 0" in screen)
            assert program.poll() is None
        finally:
            program.kill()


GARBAGE = """
import os, sys, torch
escapes = b"\\x1b[2J\\x1b[5;5Hmoved\\x1b]0;title\\x07\\x1b[?1049l\\xff\\xfe\\x00\\x9b31m\\r\\n"
os.write(1, escapes * 50)
os.write(2, bytes(range(256)))
x = torch.ones(2, requires_grad=True)
(x * 2).sum().backward()
os.write(1, "wide \u6f22\u5b57 e\u0301 \U0001f600\\n".encode())
(x * 3).sum().backward()
print("done")
"""

FORKS = """
import os, torch
x = torch.ones(2, requires_grad=True)
(x * 2).sum().backward()
child = os.fork()
(x * 3).sum().backward()
if child:
    print("child ended with", os.waitpid(child, 0)[1], flush=True)
    (x * 5).sum().backward()
else:
    os._exit(0)
print("done")
"""


@needs_tmux
@pytest.mark.slow
def test_a_program_that_is_killed_leaves_the_debugger_to_look_at_it(
    terminal: Terminal, tmp_path: Path
) -> None:
    start(terminal, tmp_path, TRAIN)
    _, program = child_of(terminal)
    terminal.type("n")
    terminal.wait_for(lambda screen: "· step ·" in screen)
    os.kill(program, signal.SIGKILL)
    terminal.wait_for(lambda screen: "The program was ended by SIGKILL" in screen)
    terminal.type("N")
    terminal.wait_for(lambda screen: "started #1 SumBackward0" in screen)
    terminal.type("q")
    terminal.wait_for(lambda screen: "left with 137" in screen)
    terminal.type("echo still $((40 + 2))", "Enter")
    terminal.wait_for(lambda screen: "still 42" in screen)


@needs_tmux
@pytest.mark.slow
def test_what_a_program_prints_does_not_disturb_the_screen(
    terminal: Terminal, tmp_path: Path
) -> None:
    start(terminal, tmp_path, GARBAGE)
    terminal.run("resize-window", "-t", "agviz", "-x", "120", "-y", "40")
    terminal.wait_for(lambda screen: "Output" in screen and "moved" in screen)
    terminal.type("c")
    terminal.wait_for(lambda screen: "has ended with exit code 0" in screen)
    terminal.type("8", "G")
    screen = terminal.wait_for(lambda screen: "done" in screen)
    assert "wide \u6f22\u5b57" in screen
    terminal.type("g")
    screen = terminal.wait_for(lambda screen: "moved" in screen)
    assert "\ufffd[2J\ufffd[5;5Hmoved\ufffd]0;title\ufffd\ufffd[?1049l" in screen
    lines = screen.splitlines()
    assert lines[0].startswith(" agviz  trace.agviz")
    borders = [line for line in lines if line.startswith(("│", "┃"))]
    assert borders
    assert all(line.rstrip()[-1] in "│┃" for line in borders)
    assert terminal.run("display-message", "-p", "-t", "agviz", "#{pane_title}").strip() != "title"
    terminal.type("q")
    terminal.wait_for(lambda screen: "left with 0" in screen)


@needs_tmux
@pytest.mark.slow
def test_a_program_that_forks_is_debugged_on(terminal: Terminal, tmp_path: Path) -> None:
    start(terminal, tmp_path, FORKS)
    terminal.type(":break Mul", "Enter")
    terminal.wait_for(lambda screen: "Breakpoint 1" in screen)
    for graph_task in range(3):
        terminal.type("c")
        terminal.wait_for(
            lambda screen, at=graph_task: f"backward #{at} " in screen and "breakpoint 1" in screen  # type: ignore[misc]
        )
    terminal.type("c")
    terminal.wait_for(lambda screen: "has ended with exit code 0" in screen)
    terminal.type("8")
    terminal.wait_for(lambda screen: "child ended with 0" in screen and "done" in screen)
    terminal.type("q")
    terminal.wait_for(lambda screen: "left with 0" in screen)


@needs_tmux
@pytest.mark.slow
def test_it_stops_where_a_planted_nan_appears_and_says_why(
    terminal: Terminal, tmp_path: Path
) -> None:
    start(terminal, tmp_path, PLANTED)
    terminal.type("c")
    terminal.wait_for(
        lambda screen: "check: SqrtBackward0 · non-finite · program.py:9 · now" in screen
    )
    terminal.type("4")
    screen = terminal.wait_for(lambda screen: "Tensors at this stop" in screen)
    terminal.wait_for(lambda screen: "Inf" in screen and "saved result" in screen)
    terminal.type("w")
    screen = terminal.wait_for(lambda screen: "✗ sqrt at zero, in SqrtBackward0" in screen)
    assert "program.py:9" in screen
    assert "stands still" not in screen
    explain = f"{sys.executable} -m agviz explain trace.agviz"
    told = subprocess.run(
        explain.split(),
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "is stopped by the debugger at SqrtBackward0 (node 1)" in told.stdout
    terminal.type("q")
    terminal.wait_for(lambda screen: "Inspector" in screen)
    terminal.type("c")
    terminal.wait_for(lambda screen: "has ended with exit code 0" in screen)
    terminal.type("q")
    terminal.wait_for(lambda screen: "left with 0" in screen)


@needs_tmux
@pytest.mark.slow
def test_twenty_thousand_nodes_are_stepped_through(terminal: Terminal, tmp_path: Path) -> None:
    start(terminal, tmp_path, CHAIN)
    terminal.wait_for(lambda screen: "20,002 nodes" in screen)
    terminal.type(":next 50", "Enter")
    terminal.wait_for(lambda screen: "started #51 MulBackward0" in screen)
    terminal.type(":break node=15000", "Enter")
    terminal.wait_for(lambda screen: "Breakpoint 1" in screen)
    terminal.type("c")
    terminal.wait_for(lambda screen: "started #15001 MulBackward0" in screen)
    terminal.wait_for(lambda screen: "breakpoint 1" in screen)
    began = time.monotonic()
    for _ in range(10):
        terminal.type("N")
    terminal.wait_for(lambda screen: "started #14991 MulBackward0" in screen)
    assert time.monotonic() - began < 10
    terminal.type("c")
    terminal.wait_for(lambda screen: "started #15001 MulBackward0" in screen)
    terminal.type("c")
    terminal.wait_for(lambda screen: "has ended with exit code 0" in screen)
    terminal.type("q")
    terminal.wait_for(lambda screen: "left with 0" in screen)
    assert all(map(torch.equal, result(tmp_path), natively(CHAIN)))


@needs_tmux
@pytest.mark.slow
def test_ctrl_z_and_ctrl_c_leave_program_and_terminal_well(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.type("set -m; clear", "Enter")
    start(terminal, tmp_path, TRAIN.replace("range(3)", "range(10**9)"))
    viewer, program = child_of(terminal)
    terminal.type("C-z")
    terminal.wait_for(lambda screen: "topped" in screen and "■ T" not in screen)
    assert is_running(program)
    terminal.type("echo in between", "Enter")
    terminal.wait_for(lambda screen: "\nin between" in screen)
    terminal.type("fg", "Enter")
    terminal.wait_for(lambda screen: "■ T0 before SumBackward0" in screen)
    terminal.type("c")
    terminal.wait_for(lambda screen: "The program runs" in screen)
    terminal.type("C-c")
    terminal.wait_for(lambda screen: "· pause ·" in screen)
    assert is_running(program)
    terminal.type("q")
    terminal.wait_for(lambda screen: "End the program" in screen)
    terminal.type("e")
    terminal.wait_for(lambda screen: re.search(r"left with \d", screen) is not None)
    wait_until(lambda: not is_running(viewer) and not is_running(program))
    terminal.type("echo still $((40 + 2))", "Enter")
    terminal.wait_for(lambda screen: "still 42" in screen)


HUNG_UP = """
import sys, threading, time
from agviz.tui.hangup import leave_with_the_terminal
leave_with_the_terminal(lambda: open("cleaned", "w").close())
threading.excepthook = lambda _: None
print("ready", flush=True)
threading.Event().wait()  # as for a thread that writes no more
"""


@pytest.mark.slow
@needs_tmux
def test_a_process_that_waits_for_a_closed_terminal_ends(
    terminal: Terminal, tmp_path: Path
) -> None:
    save(tmp_path, "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + HUNG_UP)
    terminal.type(f"exec {sys.executable} program.py", "Enter")
    terminal.wait_for(lambda screen: "ready" in screen.split())
    pid = int(terminal.run("display-message", "-p", "-t", "agviz", "#{pane_pid}"))
    terminal.run("new-session", "-d", "-s", "another")
    terminal.run("kill-pane", "-t", "agviz")
    wait_until(lambda: not is_running(pid))
    assert (tmp_path / "cleaned").exists()


def test_live_needs_a_terminal(tmp_path: Path) -> None:
    save(tmp_path, TRAIN)
    for arguments in (["run", "--live", "program.py"], ["attach", "1"]):
        finished = subprocess.run(
            [sys.executable, "-m", "agviz", *arguments],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert finished.returncode == 2
        assert "needs a terminal" in finished.stderr


class _Bare(Output):
    """The panel without a screen to be drawn on."""

    def watch_line_count(self, count: int) -> None:
        pass

    def redraw(self) -> None:
        pass

    def put_cursor(self, index: int) -> None:
        pass

    def subtitle(self, text: str) -> None:
        pass


def shown(panel: Output) -> list[str]:
    return ["".join(span.text for span in panel.line(i, 80)) for i in range(panel.line_count)]


def test_what_is_printed_can_not_speak_to_the_terminal() -> None:
    panel = _Bare(id="output")
    panel.add_bytes("cut é".encode()[:-1], STDOUT)
    panel.add_bytes("é".encode()[-1:] + b" here\n", STDOUT)
    panel.add_bytes(b"\x1b]0;title\x07\x1b[2Jred\x1b[31m\xff\n", STDERR)
    panel.add_bytes(b"10%\r 50%\r100%\r\nno end", STDOUT)
    panel.add("a\tb\u202ec\n", ANSWER)
    assert shown(panel) == [
        "  cut é here",
        "! \ufffd]0;title\ufffd\ufffd[2Jred\ufffd[31m\ufffd",
        "  100%",
        "= a    b\ufffdc",
        "  no end",
    ]
    panel.add("line\n" * 50_000 + "x" * 10_000_000, STDOUT)
    assert panel.line_count <= 10_001
    assert max(map(len, shown(panel))) <= 2_002


def test_keys_of_a_live_session_can_be_given_others() -> None:
    ids = {"live.pause", "break.toggle", "breakpoints.add", "leave.end", "panel.output", "shell"}
    assert ids <= binding_ids()
    assert "go.next-node" in binding_ids()


def test_breakpoints_are_described_as_they_are_written() -> None:
    for text in ("name=Mul", "parameter=0.weight if norm > 0", "line=train.py:12"):
        assert parse(text).describe() == text
