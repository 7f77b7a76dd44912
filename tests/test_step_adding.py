"""A network that grows while it is trained is said to, and is not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path


def train() -> None:
    torch.manual_seed(0)
    units = nn.ParameterList([nn.Parameter(torch.randn(6, 1))])
    optimizer = torch.optim.SGD(units, lr=0.01)
    for _ in range(5):
        for _ in range(2):
            x = torch.randn(16, 6)
            loss = (sum((x @ unit).tanh() for unit in units) - x.sum(1, keepdim=True)).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        units.append(nn.Parameter(torch.randn(6, 1)))
        optimizer.add_param_group({"params": [units[-1]]})  # grows


def test_a_network_that_grows_is_said_to(tmp_path: Path) -> None:
    with agviz.trace(path=tmp_path / "t.agviz"):
        train()
    with Trace.open(tmp_path / "t.agviz") as trace:
        (found,) = verdicts(trace)
    assert found.outcome is Outcome.CANT_TELL
    assert found.source.endswith("# grows")
    assert "more and more parameters" in found.heading
