"""Recordings that begin and end while threads train change nothing, and each can be read."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

PROGRAM = Path(__file__).with_name("threads_program.py")
SLOW = pytest.mark.slow


def _run(steps: int, *args: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(steps), *args],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )


@functools.cache
def _alone(steps: int) -> str:
    return _run(steps).stdout


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        pytest.param(30, {"check_forward": True, "values": "full"}, id="full, few steps"),
        pytest.param(100, {"check_forward": True, "values": "full"}, id="full", marks=SLOW),
        pytest.param(100, {}, id="exact", marks=SLOW),
        pytest.param(100, {"engine": "native"}, id="native", marks=SLOW),
    ],
)
def test_threads_train_as_without_recordings(
    tmp_path: Path, steps: int, options: dict[str, Any]
) -> None:
    done = _run(steps, str(tmp_path), json.dumps(options))
    assert not done.stderr  # what a thread raised says more than that its model differs
    assert done.stdout == _alone(steps)
    assert done.stdout.count("True ") == 8
    recordings = sorted(tmp_path.glob("*.agviz"))
    assert recordings
    for path in recordings:
        with Trace.open(path) as trace:
            assert all(found.outcome is not Outcome.FOUND for found in verdicts(trace)), path


def test_each_thread_may_be_at_a_graph(tmp_path: Path) -> None:
    """Graphs that are alive because their threads are at them are not kept by the program."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    losses: list[torch.Tensor] = []

    def step(made_before: int) -> None:
        for _ in range(made_before):  # nodes are numbered thread by thread
            model(torch.ones(2, 4))
        losses.append(model(torch.ones(2, 4)).sum())
        losses[-1].backward()
        optimizer.step()

    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        threads = [threading.Thread(target=step, args=(10 * n,)) for n in range(1, 4)]
        for each in threads:
            each.start()
            each.join()
        step(40)
    with Trace.open(path) as trace:
        assert any(look.is_growing for look in trace.live_graphs())
        assert verdicts(trace)[0].outcome is Outcome.NOTHING_UNUSUAL
