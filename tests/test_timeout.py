"""Where a backward pass stands still it is told of, in the file and, after a timeout, on stderr."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

import pytest
import torch

import agviz
from agviz.analysis.hang import Hang, hang
from agviz.cli.main import main
from agviz.errors import AgvizError
from agviz.record.options import Options, read_seconds
from agviz.record.watchdog import Watchdog
from agviz.traces.dumps import STALL, TIMEOUT
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus
from tests.test_cli_run import ENVIRONMENT, without_our_lines
from tests.test_cli_run import agviz as command
from tests.test_cli_run import python as plain_python

if TYPE_CHECKING:
    from pathlib import Path

STALLS = """
import sys, time, torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
def slow(gradient):
    print("begins", flush=True)
    time.sleep(SECONDS)
for step in range(3):
    output = model(torch.ones(3, 4))
    if step == 2:
        output.register_hook(slow)
    output.sum().backward()
print("went on")
sys.exit(3)
"""


@pytest.mark.slow
def test_a_program_that_stalls_is_told_of_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STALLS.replace("SECONDS", "1.5"))
    plain = plain_python("train.py", cwd=tmp_path)
    ours = command("run", "--timeout", "0.4", "-o", "t.agviz", "train.py", cwd=tmp_path)
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert ours.returncode == 3
    assert without_our_lines(ours.stderr) == plain.stderr
    assert ours.stderr.count("agviz: a backward pass has been under way for 0.4 s\n") == 1
    assert (
        "held by its tensor hook slow (train.py:4), at train.py:6 in slow: time.sl" in ours.stderr
    )
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert {task.status for task in trace.graph_tasks} == {GraphTaskStatus.FINISHED}
        assert [dump.reason for dump in trace.dumps()] == [TIMEOUT]
        assert hang(trace) is None
    assert main(["explain", str(tmp_path / "t.agviz")]) == 0


def test_a_program_that_hangs_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STALLS.replace("SECONDS", "600"))
    options = ("--timeout", "0.4s", "--stop-on-timeout", "-o", "t.agviz")
    ours = command("run", *options, "train.py", cwd=tmp_path)
    assert (ours.returncode, ours.stdout) == (124, "begins\n")
    assert ours.stderr.endswith(
        "agviz: recorded 3 backward passes in t.agviz; backward pass 2 stood still when the"
        " recording ended (train.py:6 in slow); to read why: agviz explain t.agviz;"
        " the program is stopped\n"
    )
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert trace.meta.end_ns is not None
        assert [str(task.status) for task in trace.graph_tasks] == ["finished", "finished", "cut"]
    told = command("explain", "t.agviz", cwd=tmp_path)
    assert told.returncode == 1
    assert "✗ backward pass 2 stood still when the recording ended\n" in told.stdout
    assert "      time.sleep(600)\n" in told.stdout


def test_a_flight_recorder_writes_after_a_timeout(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STALLS.replace("SECONDS", "1.5"))
    options = ("--on", "nonfinite", "--keep", "2", "--timeout", "0.4", "-o", "t.agviz")
    ours = command("run", *options, "train.py", cwd=tmp_path)
    assert ours.returncode == 3
    assert "agviz: backward pass 2 has run for" in ours.stderr
    assert "agviz: recorded 2 backward passes in t.agviz" in ours.stderr
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [task.id for task in trace.graph_tasks] == [1, 2]
        assert [dump.reason for dump in trace.dumps()] == [TIMEOUT]


class Hanging:
    """A program that hangs under ``agviz run``."""

    def __init__(self, folder: Path, *options: str, patience: bool = False) -> None:
        text = STALLS.replace("SECONDS", "600")
        if patience:  # the threads are not looked at as soon as usual
            late = "import agviz.record.watchdog as w; w.INSIDE_NS = w.PATIENCE_NS; import sys"
            text = text.replace("import sys", late)
        (folder / "train.py").write_text(text)
        self.path = folder / "t.agviz"
        call = [sys.executable, "-m", "agviz", "run", "-o", str(self.path), *options, "train.py"]
        self.process = subprocess.Popen(
            call,
            cwd=folder,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "begins\n"

    def stands(self, *, dumped: bool) -> Hang:
        """How it stands where it hangs, as soon as its stacks are in the file, or before."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with Trace.open(self.path) as trace:
                found = hang(trace)
            if found is not None and found.is_dumped == dumped:
                running = found.threads[0].running
                if running and running[-1].short_name == "AddmmBackward0":
                    return found  # the file may have been written to on the way there, too
            time.sleep(0.05)
        raise AssertionError("it did not come there")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_a_program_can_be_asked_while_it_hangs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Hanging(tmp_path, "--timeout", "0.3") as program:
        found = program.stands(dumped=True)
        assert found.is_growing
        assert main(["explain", str(program.path)]) == 1
        shown = capsys.readouterr().out
        assert "✗ backward pass 2 stands still\n" in shown
        assert "held by its tensor hook slow" in " ".join(shown.split())
        time.sleep(0.3)
        assert program.stands(dumped=True).still_ns > found.still_ns + 2e8
        program.process.send_signal(signal.SIGKILL)
        program.process.wait()
        assert not program.stands(dumped=True).is_growing


@pytest.mark.slow
def test_what_is_known_before_the_stacks_are_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Hanging(tmp_path, patience=True) as program:
        found = program.stands(dumped=False)
        (stand,) = found.threads
        assert (stand.name, stand.running[-1].short_name) == ("MainThread", "AddmmBackward0")
        assert (stand.call, stand.frame) == (None, None)
        assert main(["explain", str(program.path)]) == 2
        assert capsys.readouterr().out.startswith("? backward pass 2 is under way\n")
        assert "is recorded once nothing has happened for a second" in found.paragraph
        program.process.kill()
        program.process.wait()
        assert main(["explain", str(program.path)]) == 1
        heading = "✗ backward pass 2 was under way when the recording was cut off\n"
        assert capsys.readouterr().out.startswith(heading)


def test_stacks_are_recorded_without_being_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agviz.record.watchdog.PATIENCE_NS", 200_000_000)
    opened = threading.Event()
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        (torch.ones(3, requires_grad=True) * 2).sum().backward()
        y = torch.ones(3, requires_grad=True).exp()
        y.register_hook(lambda _: opened.wait(2.0))
        with pytest.raises(TypeError):
            y.sum().backward()
        time.sleep(0.5)
    with Trace.open(path) as trace:
        task = trace.graph_tasks[-1]
        dumps = [dump for dump in trace.dumps() if dump.time_ns < (task.end_ns or 0)]
        outside = [dump for dump in trace.dumps() if dump not in dumps]
    assert {dump.reason for dump in (*dumps, *outside)} == {STALL}
    assert all(not thread.calls for dump in outside for thread in dump.threads)
    assert 2 <= len(dumps) <= 4, "after 0.2, 0.4, 0.8 and 1.6 s, as far as the machine keeps up"
    for dump in dumps:
        assert task.begin_ns < dump.time_ns
        (main_thread,) = (t for t in dump.threads if t.name == "MainThread")
        hook = main_thread.calls[-1]
        assert (hook.kind, hook.graph_task, hook.name) == ("tensor_pre", task.id, "<lambda>")
        assert not any(thread.name.startswith("agviz-") for thread in dump.threads)


def test_when_the_threads_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    watchdog = Watchdog(0, 12.0, None)
    seen = []
    for second in range(1, 50):
        now[0] = second * 10**9
        if second == 3:
            watchdog.under_way[7] = now[0]
        watchdog.moved = second == 33
        reason = watchdog.due()
        if reason is not None:
            seen.append((second - 2, reason))
    first = [(1, STALL), (5, STALL), (10, STALL), (13, TIMEOUT), (20, STALL)]
    assert seen == [*first, (31 + 1, STALL), (31 + 5, STALL), (31 + 10, STALL)]


def test_a_pass_in_which_events_go_on_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    watchdog = Watchdog(0, 12.0, None)
    seen = []
    for second in range(1, 60):
        now[0] = second * 10**9
        watchdog.moved = True
        if second in {2, 40}:
            watchdog.under_way = {second: now[0]}
        if second == 20:
            watchdog.holding.hold(0, 2, 1, "step")
        if second == 30:
            watchdog.holding.let_go(0)
        if second in {4, 13, 14, 15}:
            watchdog.under_way[100 + second] = now[0]  # reentrant ones
        if watchdog.due() is not None:
            seen.append(second)
    assert seen == [2 + 12, 40 + 12]


def test_a_pass_that_a_debugger_holds_does_not_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    watchdog = Watchdog(0, 12.0, None)
    seen = []
    for second in range(1, 60):
        now[0] = second * 10**9
        watchdog.moved = True
        if second == 2:
            watchdog.under_way[2] = now[0]
        if second == 5:
            watchdog.holding.hold(0, 2, 1, "step")
        if second == 40:
            watchdog.holding.let_go(0)
        if watchdog.due() is not None:
            seen.append(second)
    assert seen == [40 + 12]


def test_a_trace_within_a_program_tells_after_a_timeout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with agviz.trace(path=tmp_path / "t.agviz", timeout=0.2) as t:
        y = torch.ones(3, requires_grad=True).exp()
        y.register_hook(lambda _: time.sleep(1.0))
        y.sum().backward()
        assert t.failure() is None
    told = capfd.readouterr().err
    assert "agviz: a backward pass has been under way for 0.2 s\n" in told
    assert re.search(r"held by its tensor hook <lambda> \(.*test_timeout\.py:\d+\)", told)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 60.0), ("0.5", 0.5), ("90s", 90.0), ("10 min", 600.0), ("2h", 7200.0)],
)
def test_times(text: str, seconds: float) -> None:
    assert read_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1", "soon", "1d", "nan", "1e9", "999999999h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(AgvizError, match="is no time to wait"):
        read_seconds(text)


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    for timeout in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(AgvizError, match="is no time to wait"):
            Options(timeout=timeout)
    with pytest.raises(AgvizError, match="no timeout on which to stop"):
        Options(stop_on_timeout=True)
    (tmp_path / "train.py").touch()
    ours = command("run", "--stop-on-timeout", "train.py", cwd=tmp_path)
    assert ours.returncode == 2
    assert ours.stderr == "agviz: --stop-on-timeout is for --timeout; say after how many seconds\n"


CHANGES = """
import torch
x = torch.ones(3, requires_grad=True)
y = x.exp()
loss = y.sum()
y += 1
loss.backward()
"""


@pytest.mark.slow
def test_the_closing_line_and_the_summary_say_why_backward_failed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CHANGES)
    ours = command("run", "--check-forward", "-o", "t.agviz", "train.py", cwd=tmp_path)
    assert ours.returncode == 1
    plain = plain_python("train.py", cwd=tmp_path)
    assert without_our_lines(ours.stderr).splitlines()[-1] == plain.stderr.splitlines()[-1]
    assert (
        "agviz: recorded 1 backward pass in t.agviz; modified by an inplace operation, what"
        " ExpBackward0 had saved (train.py:6 in <module>); to read why: agviz explain t.agviz\n"
    ) in ours.stderr
    summary = command("summary", "t.agviz", cwd=tmp_path)
    assert "Tensor.add_ modified it at train.py:6 in <module>." in " ".join(summary.stdout.split())
