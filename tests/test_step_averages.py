"""Averages of weights that a run is too short for: they are shown and not judged."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING

import pytest

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import copy, torch
from torch import nn
torch.manual_seed(0)

class SlowCopy:
    def __init__(self, model, decay=DECAY):
        self.decay = decay
        self.model = copy.deepcopy(model)

    @torch.no_grad()
    def update(self, model):
        for shadow, own in zip(self.model.parameters(), model.parameters()):
            shadow.lerp_(own, 1 - self.decay)

model = nn.Linear(4, 1)
shadow = SlowCopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(40):
    x = torch.randn(8, 4)
    loss = (model(x) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    shadow.update(model)
"""


@pytest.mark.parametrize(("decay", "is_shown"), [("0.9999", True), ("0.99", False)])
def test_an_average_that_is_what_it_began_as_is_shown(
    decay: str, is_shown: bool, tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.replace("DECAY", decay))
    with agviz.trace(path=tmp_path / "t.agviz"):
        runpy.run_path(str(program))
    with Trace.open(tmp_path / "t.agviz") as trace:
        (found,) = verdicts(trace)
    if is_shown:
        assert found.outcome is Outcome.CANT_TELL
        assert "shadow still is 99.6% its start" in found.heading
        assert found.source == "shadow.lerp_(own, 1 - self.decay)"
        assert len(found.paragraph.split()) <= 70
    else:
        assert found.outcome is Outcome.NOTHING_UNUSUAL
