"""Threads that train a model each while all are recorded, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import agviz

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import sys, threading
import torch
from torch import nn
import agviz

def train():
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().sum().backward()
        optimizer.step()

for number in range(3):
    with agviz.trace(path=sys.argv[1], engine=sys.argv[2]):
        threads = [threading.Thread(target=train) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["exact", pytest.param("native", marks=pytest.mark.slow)])
def test_no_gradient_of_another_thread_is_read(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "t.agviz"
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM, str(path), engine],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    with agviz.Trace.open(path) as trace:
        assert len(trace.graph_tasks) == 450
        had = [row.had_grad for row in trace.parameters(trace.graph_tasks[-1].id)]
    assert not any(had)
