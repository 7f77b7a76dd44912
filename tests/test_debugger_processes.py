"""What becomes of the debugged program when something ends, dies, forks or is interrupted."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from agviz.debugger.breakpoints import parse
from agviz.debugger.client import Client, GoneError, RefusedError
from agviz.debugger.listening import connect
from agviz.debugger.messages import Said
from agviz.errors import AgvizError
from tests.debugger_support import (
    ENVIRONMENT,
    SECONDS,
    TRAIN,
    debug,
    finish,
    is_running,
    natively,
    result,
    save,
    trace_of,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDLESS = TRAIN.replace("range(3)", "range(10**9)")

VIEWER = """
import sys, time
from pathlib import Path
from agviz.debugger.launch import Debuggee
debuggee = Debuggee(["-o", "trace.agviz", "program.py"], cwd=Path.cwd())
debuggee.client.set_stops(first=True, exceptions=True, nonfinite="every")
print(debuggee.process.pid, debuggee.client.next_stop().name, flush=True)
time.sleep(600)
"""


def test_the_program_goes_on_when_its_viewer_is_killed(tmp_path: Path) -> None:
    text = TRAIN + "import sys\nfor _ in range(20_000):\n    print('something to read')\n"
    save(tmp_path, text)
    viewer = subprocess.Popen(
        [sys.executable, "-c", VIEWER],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert viewer.stdout is not None
    with viewer, viewer.stdout:
        pid, name = viewer.stdout.readline().split()
        assert name == "SumBackward0"
        assert is_running(int(pid))
        viewer.send_signal(signal.SIGKILL)
        viewer.wait(SECONDS)
    wait_until(lambda: not is_running(int(pid)))
    assert all(map(torch.equal, result(tmp_path), natively(TRAIN)))


@pytest.mark.slow
def test_a_viewer_that_goes_or_detaches_takes_its_breakpoints_along(tmp_path: Path) -> None:
    for leave in (Client.close, Client.detach):
        with debug(tmp_path, TRAIN) as debuggee:
            debuggee.client.set_stops(first=True, nonfinite="every")
            debuggee.client.add_breakpoint(parse("."))
            debuggee.client.next_stop()
            leave(debuggee.client)
            assert finish(debuggee) == "done\n"
        assert all(map(torch.equal, result(tmp_path), natively(TRAIN)))


@pytest.mark.slow
def test_a_program_that_is_killed_is_gone(tmp_path: Path) -> None:
    with debug(tmp_path, ENDLESS) as debuggee:
        debuggee.client.set_stops(first=True)
        debuggee.client.next_stop()
        debuggee.process.kill()
        assert debuggee.exit_code() == 137
        with pytest.raises(GoneError):
            debuggee.client.next_stop()
        with pytest.raises(GoneError):
            debuggee.client.step()
        assert debuggee.client.is_gone


@pytest.mark.slow
def test_no_program_is_left_behind(tmp_path: Path) -> None:
    stubborn = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{ENDLESS}"
    with debug(tmp_path, stubborn) as debuggee:
        debuggee.client.set_stops(first=True)
        debuggee.client.next_stop()
        pid = debuggee.process.pid
    assert not is_running(pid)


@pytest.mark.slow
def test_what_the_program_prints_is_kept_as_it_is(tmp_path: Path) -> None:
    text = """
import os, sys
os.write(1, bytes(range(256)) * 4_000)
sys.stderr.write("\\x1b]0;title\\x07\\x1b[2J" * 100)
print("a line that is not the last", flush=False)
import time
time.sleep(60)
"""
    with debug(tmp_path, text) as debuggee:
        said = b""

        def whole() -> bool:
            nonlocal said
            said += debuggee.stdout.read()
            return said.endswith(b"not the last\n")

        wait_until(whole)
        assert said.startswith(bytes(range(256)) * 4_000)
        assert debuggee.stderr.read().count(b"\x1b[2J") == 100
        assert debuggee.client.where() == []


@pytest.mark.slow
def test_a_forked_child_is_not_debugged(tmp_path: Path) -> None:
    text = """
import os
import torch
x = torch.ones(2, requires_grad=True)
(x * 2).sum().backward()
child = os.fork()
(x * 3).sum().backward()
if child:
    print("child ended with", os.waitpid(child, 0)[1], flush=True)
print(child > 0, x.grad.tolist(), flush=True)
"""
    with debug(tmp_path, text) as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("MulBackward0"))
        client.next_stop()
        client.go_on()
        stop = client.next_stop()
        said = b""

        def child_has_ended() -> bool:
            nonlocal said
            said += debuggee.stdout.read()
            return said == b"False [5.0, 5.0]\n"

        wait_until(child_has_ended)
        assert [each.seq for each in client.where()] == [stop.seq]
        client.go_on()
        assert finish(debuggee) == "child ended with 0\nTrue [5.0, 5.0]\n"


@pytest.mark.slow
def test_signals_while_it_is_stopped(tmp_path: Path) -> None:
    text = ENDLESS.replace(
        "    loss.backward()",
        "    try:\n        loss.backward()\n"
        "    except KeyboardInterrupt:\n        print('interrupted', flush=True)\n",
    )
    with debug(tmp_path, text) as debuggee:
        client = debuggee.client
        client.set_stops(first=True)
        stop = client.next_stop()
        debuggee.process.send_signal(signal.SIGSTOP)
        debuggee.process.send_signal(signal.SIGCONT)
        assert [each.seq for each in client.where()] == [stop.seq]
        client.step()
        client.next_stop()
        debuggee.process.send_signal(signal.SIGINT)
        notice = client.next_notice()
        assert isinstance(notice, Said)
        assert (notice.what, notice.thread) == ("resumed", stop.thread)
        wait_until(lambda: debuggee.stdout.read() == b"interrupted\n")
        client.pause()
        client.next_stop()


WAITS = """
import time
import torch
x = torch.ones(2, requires_grad=True)
while True:
    (x * 2).sum().backward()
    time.sleep(0.01)
"""


@contextlib.contextmanager
def started(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A program that runs, in whose runtime directory sockets are looked for."""
    save(folder, WAITS)
    runtime = folder / "runtime"
    runtime.mkdir()
    program = subprocess.Popen(
        [sys.executable, "-m", "agviz", "run", *options, "-o", "trace.agviz", "program.py"],
        cwd=folder,
        env={**ENVIRONMENT, "XDG_RUNTIME_DIR": str(runtime)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stderr is not None
    with program, program.stderr, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        try:
            yield program
        finally:
            program.send_signal(signal.SIGINT)
            program.wait(SECONDS)
    assert not list(runtime.glob("agviz/*"))


@pytest.mark.slow
def test_any_program_is_attached_to(tmp_path: Path) -> None:
    with started(tmp_path) as program:
        place = tmp_path / "runtime" / "agviz" / f"{program.pid}.sock"
        wait_until(place.exists)
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        threads = Path(f"/proc/{program.pid}/task")
        names = [(each / "comm").read_text() for each in threads.iterdir()]
        assert not any(name.startswith("agviz-listen") for name in names), names
        with Client(connect(str(program.pid))) as client:
            assert (client.hello.pid, client.hello.script) == (program.pid, "program.py")
            assert client.hello.trace == tmp_path / "trace.agviz"
            client.pause()
            first = client.next_stop()
        with Client(connect(str(place))) as client:
            assert client.where() == []
            client.add_breakpoint(parse("MulBackward0"))
            assert client.next_stop().seq > first.seq
        assert program.poll() is None


@pytest.mark.slow
def test_only_one_viewer_at_a_time_is_welcome(tmp_path: Path) -> None:
    with started(tmp_path, "--listen") as program:
        assert program.stderr is not None
        said = program.stderr.readline()
        assert said == f"agviz: to debug this program: agviz attach {program.pid}\n"
        with Client(connect(str(program.pid))) as client:
            client.pause()
            client.next_stop()
            with pytest.raises(RefusedError, match="another viewer is attached"):
                Client(connect(str(program.pid)))
            assert client.where()


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--no-listen"], ["--on", "nonfinite"]])
def test_what_does_not_listen_is_said(tmp_path: Path, options: list[str]) -> None:
    with started(tmp_path, *options) as program:
        maps = Path(f"/proc/{program.pid}/maps")
        wait_until(lambda: "libtorch" in maps.read_text())  # it has begun long ago
        with pytest.raises(AgvizError, match="does not listen: start it with agviz run"):
            connect(str(program.pid))


@pytest.mark.slow
def test_set_trace_waits_for_nobody_and_stops_where_a_viewer_is(tmp_path: Path) -> None:
    text = """
import agviz
import torch
x = torch.ones(2, requires_grad=True)
for step in range(3):
    y = (x * 2).sum()
    agviz.set_trace()
    y.backward()
print("done")
"""
    with debug(tmp_path, text) as debuggee:
        for step in range(3):
            stop = debuggee.client.next_stop()
            assert (stop.reasons, stop.graph_task) == (("set_trace()",), step)
            debuggee.client.go_on()
        assert finish(debuggee) == "done\n"

    runtime = tmp_path / "runtime"
    runtime.mkdir()
    finished = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**ENVIRONMENT, "XDG_RUNTIME_DIR": str(runtime), "AGVIZ_OUTPUT": "own.agviz"},
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    assert finished.stdout == "done\n"
    words = "agviz: to debug this program, type in another terminal: agviz attach "
    assert finished.stderr.count(words) == 1
    assert "recorded 3 backward passes in own.agviz" in finished.stderr
    assert list((runtime / "agviz").iterdir()) == []


@pytest.mark.slow
def test_a_flight_recorder_is_not_debugged(tmp_path: Path) -> None:
    save(tmp_path, "raise SystemExit(7)")
    finished = subprocess.run(
        [sys.executable, "-m", "agviz", "run", "--listen", "--on", "nonfinite", "program.py"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert finished.returncode == 2
    assert "leave --on out: it stops at exceptions" in finished.stderr


@pytest.mark.slow
def test_it_stops_only_in_backward_passes_that_are_recorded(tmp_path: Path) -> None:
    text = TRAIN.replace("range(3)", "range(8)")
    with debug(tmp_path, text, "--steps", "1:7", "--every", "3") as debuggee:
        client = debuggee.client
        client.add_breakpoint(parse("."))
        client.set_stops(first=True)
        stop = client.next_stop()
        assert (stop.reasons, stop.graph_task, stop.node) == (
            ("breakpoint", "first backward"),
            1,
            0,
        )
        client.remove_breakpoint(1)
        client.until(1, -1)
        assert client.next_stop().event == "GraphTaskFinished"
        client.step()
        stop = client.next_stop()
        assert (stop.graph_task, stop.node) == (4, 0)
        with trace_of(debuggee) as trace:
            assert [row.id for row in trace.graph_tasks] == [1, 4]
            assert trace.state_at(4, trace.event_count(4)).seq == stop.seq
        client.step()
        client.next_stop()
        client.go_on()
        assert finish(debuggee) == "done\n"
    assert all(map(torch.equal, result(tmp_path), natively(text)))


@pytest.mark.slow
def test_a_descriptor_that_is_no_socket_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "raise SystemExit(7)")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for descriptor in ("9999", "0"):
            finished = subprocess.run(
                [sys.executable, "-m", "agviz", "run", "--control-fd", descriptor, "program.py"],
                cwd=tmp_path,
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )
            assert finished.returncode == 2, os.strerror(finished.returncode)
            assert "is no socket" in finished.stderr
