"""A Python without what only POSIX has, as far as our own code can see: what Windows lacks.

The standard library and torch are imported before the names go: they decide by the platform.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from agviz.debugger import listening
from agviz.errors import AgvizError
from agviz.traces.reader import Trace
from tests.test_cli_run import ENVIRONMENT

if TYPE_CHECKING:
    from pathlib import Path

LACKS = """
import concurrent.futures.process, faulthandler, getpass, http.client, logging, multiprocessing
import multiprocessing.context, multiprocessing.popen_fork, multiprocessing.popen_spawn_posix
import multiprocessing.resource_tracker, multiprocessing.synchronize, multiprocessing.util
import os, pathlib, pdb, platform, random, shutil, signal, socket, subprocess, sys, tempfile
import asyncio, numpy, platformdirs.unix, pytest, torch, torch.multiprocessing

for name in ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
LACKING = {
    os: "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK chown fchmod fchown fork forkpty getegid"
    " geteuid getgid getpgid getpgrp getuid killpg mkfifo nice openpty pread preadv pwrite pwritev"
    " register_at_fork sched_getaffinity setsid statvfs sysconf tcgetpgrp ttyname uname wait4"
    " waitid",
    signal: "ITIMER_PROF ITIMER_REAL ITIMER_VIRTUAL SIGALRM SIGCHLD SIGCONT SIGHUP SIGPIPE"
    " SIGPROF SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH alarm getitimer pause"
    " pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait",
    socket: "AF_UNIX",
}
for module, names in LACKING.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""
TRAINS = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
for step in range(4):
    model.zero_grad()
    out = model(torch.ones(3, 4)) * (0 if step == 3 else 1)
    out.square().mean().sqrt().backward()
    for p in model.parameters(): p.data.add_(p.grad, alpha=-0.1)
print(float(model[0].weight.grad.isnan().sum()))
"""
TEST = """
def test_it():
    from train import model
    assert model[0].weight.grad.isfinite().all()
"""


@pytest.fixture
def lacking(tmp_path: Path) -> dict[str, str]:
    """An environment in which Python lacks it."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(LACKS)
    path = os.pathsep.join([str(tmp_path / "first"), ENVIRONMENT.get("PYTHONPATH", "")])
    return ENVIRONMENT | {"PYTHONPATH": path}


def ran(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("engine", [pytest.param("exact", marks=pytest.mark.slow), "native"])
def test_a_program_is_recorded_and_explained(
    engine: str, lacking: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    run = ["agviz", "run", "--engine", engine, "-o", "t.agviz", "train.py"]
    done = ran(tmp_path, lacking, *run)
    assert (done.returncode, done.stdout) == (0, "32.0\n"), done.stderr
    assert "Traceback" not in done.stderr
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.graph_tasks) == 4
    said = ran(tmp_path, lacking, "agviz", "explain", "t.agviz")
    assert said.stdout.startswith("\N{BALLOT X}"), said.stderr
    assert "train.py:8" in said.stdout


@pytest.mark.slow
def test_a_failing_test_is_explained(lacking: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "test_it.py").write_text(TEST)
    only_ours = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = ["-q", "-p", "agviz.pytest_plugin", "--agviz=retain-on-failure"]
    done = ran(tmp_path, lacking | only_ours, "pytest", *options)
    assert "1 failed" in done.stdout, done.stderr
    assert "train.py:8" in done.stdout
    assert list(tmp_path.glob("agviz-results/*/trace.agviz"))


def test_what_needs_posix_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    with pytest.raises(AgvizError, match="can't be attached to on this platform"):
        listening.folder()
