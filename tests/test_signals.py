"""SIGUSR1 says where every thread is, whatever hangs, and harms no handler of the program."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agviz.traces.reader import Trace
from tests.test_cli_run import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGIN = """
import hashlib, itertools, os, signal, sys, threading, time, torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
for _ in range(4):
    model(torch.ones(3, 4)).sum().backward()
released = threading.Event()
def stuck(gradient):
    print("stuck", flush=True)
    HANG
output = model(torch.ones(3, 4))
output.register_hook(stuck)
output.sum().backward()
print("went on", flush=True)
"""


class Program:
    """A training that runs under ``agviz run --on signal``."""

    def __init__(self, text: str, folder: Path, *arguments: str) -> None:
        (folder / "train.py").write_text(text)
        self.path = folder / "t.agviz"
        self.errors = folder / "stderr"
        call = ["-m", "agviz", "run", "-o", self.path, *arguments, "train.py"]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *map(str, call)],
                cwd=folder,
                env=ENVIRONMENT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def says(self, line: str) -> None:
        """Read what it says next; it has to be ``line``."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{line}\n", self.errors.read_text()

    def computes(self) -> None:
        """Wait until it has computed for a while since it last said something."""
        begin = self._ticks()
        deadline = time.monotonic() + 30
        while self._ticks() - begin < os.sysconf("SC_CLK_TCK") // 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _ticks(self) -> int:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11])

    def ask(self, until: str) -> str:
        """Send the signal; gives what it has written by the time it says ``until``."""
        self.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 30
        while until not in (told := self.errors.read_text()):
            assert time.monotonic() < deadline, told
            time.sleep(0.02)
        return told


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.process.kill()
        program.process.wait()
        assert program.process.stdout is not None
        program.process.stdout.close()


ON_SIGNAL = ("--on", "signal", "--keep", "2")


@pytest.mark.parametrize(
    "hang",
    [
        pytest.param("released.wait(60)", id="waits in Python", marks=pytest.mark.slow),
        pytest.param("hashlib.pbkdf2_hmac('md5', b'', b'', 10**9)", id="inside C"),
    ],
)
def test_where_a_stuck_backward_is(hang: str, tmp_path: Path, programs: list[Program]) -> None:
    program = Program(BEGIN.replace("HANG", hang), tmp_path, *ON_SIGNAL)
    programs.append(program)
    program.says("stuck")
    told = program.ask("more backward passes are in")
    assert re.search(r'File ".*train.py", line \d+ in stuck', told), "faulthandler's"
    assert re.search(r"agviz: backward pass 4 has run for [\d.]+ m?s: 1 of 10 nodes done", told)
    assert re.search(
        r"agviz: thread 0 \(MainThread\) runs AddmmBackward0 \[2\] of backward pass 4"
        r" for [\d.]+ m?s"
        r"\nagviz:   in the tensor hook stuck \(train\.py:7\)"
        rf"\nagviz:   at train\.py:9 in stuck: {re.escape(hang)}\n",
        told,
    )
    assert "8 nodes wait in backward pass 4: " in told
    missing = "1 of 1 gradients missing, from AddmmBackward0 [2]"
    assert f"TBackward0 [2] ({missing})" in told
    assert "held by its tensor hook stuck (train.py:7), at train.py:9 in stuck. " in told
    assert "agviz: 2 more backward passes are in" in told
    program.process.kill()
    program.process.wait()
    with Trace.open(program.path) as trace:
        assert [task.id for task in trace.graph_tasks] == [3, 4]
        assert [dump.reason for dump in trace.dumps()] == ["signal"]


@pytest.mark.slow
def test_stacks_are_told_while_the_interpreter_is_locked(
    tmp_path: Path, programs: list[Program]
) -> None:
    text = BEGIN.replace("HANG", "sum(itertools.repeat(1, 1_000_000_000))")
    program = Program(text, tmp_path, *ON_SIGNAL)
    programs.append(program)
    program.says("stuck")
    program.computes()
    told = program.ask("train.py")
    assert "in stuck" in program.ask("in stuck")
    assert "agviz: SIGUSR1" not in told
    program.ask("agviz: SIGUSR1 in process")


@pytest.mark.slow
def test_a_main_thread_that_waits_for_a_device_thread(
    tmp_path: Path, programs: list[Program]
) -> None:
    text = BEGIN.replace("HANG", "released.wait(60)").replace(
        "output = model",
        "from agviz_engine.api import engine\n"
        "engine().device_policy = lambda node: 0 if 'Addmm' in node.name() else -1\noutput = model",
    )
    program = Program(text, tmp_path, *ON_SIGNAL)
    programs.append(program)
    program.says("stuck")
    told = program.ask("nodes wait in")
    assert "agviz: thread 0 (MainThread) waits for its ReadyQueue\n" in told
    assert re.search(
        r"agviz: thread \d \(pt_autograd_0\) runs AddmmBackward0 \[2\] of backward pass 4", told
    )


def test_the_signal_changes_nothing_for_the_program(
    tmp_path: Path, programs: list[Program]
) -> None:
    program = Program(BEGIN.replace("HANG", "time.sleep(2)"), tmp_path, *ON_SIGNAL)
    programs.append(program)
    program.says("stuck")
    program.ask("more backward passes")
    program.says("went on")
    assert program.process.wait(30) == 0


PROGRAMS_OWN = """
import signal, os, sys, time
def mine(number, frame):
    print("mine", number == signal.SIGUSR1, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_a_handler_of_the_program_is_called(
    when: str, tmp_path: Path, programs: list[Program]
) -> None:
    lines = ["signal.signal(signal.SIGUSR1, mine)", "import torch"]
    text = PROGRAMS_OWN + "\n".join(lines if when == "before" else lines[::-1])
    text += "\ntorch.ones(1, requires_grad=True).backward()\nprint('ready', flush=True)\n"
    text += "time.sleep(0.3)\n" * 20
    program = Program(text, tmp_path, *ON_SIGNAL)
    programs.append(program)
    program.says("ready")
    program.process.send_signal(signal.SIGUSR1)
    program.says("mine True")
    if when == "before":
        program.ask("more backward passes are in")


@pytest.mark.slow
def test_all_is_as_it_was_afterwards(tmp_path: Path) -> None:
    program = """
import asyncio, faulthandler, os, signal, sys, time
import agviz, torch
def mine(number, frame):
    print("mine")
read, write = os.pipe()
os.set_blocking(write, False)
for before in (signal.SIG_DFL, signal.SIG_IGN, mine):
    signal.signal(signal.SIGUSR1, before)
    with agviz.trace(path="t.agviz", on=["signal"]):
        torch.ones(1, requires_grad=True).backward()
        assert signal.getsignal(signal.SIGUSR1) not in (signal.SIG_DFL, signal.SIG_IGN, mine)
        if not (pid := os.fork()):
            assert signal.getsignal(signal.SIGUSR1) == before
            assert signal.set_wakeup_fd(-1) == -1
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.3)
    assert signal.getsignal(signal.SIGUSR1) == before
    assert signal.set_wakeup_fd(-1) == -1
    assert not faulthandler.unregister(signal.SIGUSR1)
signal.set_wakeup_fd(write)
with agviz.trace(path="t.agviz", on=["signal"]) as t:
    torch.ones(1, requires_grad=True).backward()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert os.read(read, 1) == bytes([signal.SIGUSR1])
    time.sleep(0.3)
    assert len(t.graph_tasks) == 1
assert signal.set_wakeup_fd(-1) == write
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "mine\nmine\n"
    assert ended.stderr.count("agviz: SIGUSR1 in process") == 4
