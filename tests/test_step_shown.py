"""What may be meant, as the text and the graph of a program show it: it is shown, not judged."""

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

    from agviz.analysis.verdict import Verdict

BEGIN = """
import copy, torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
"""
AVERAGE = """
class SlowCopy:
    def __init__(self, model, decay=0.9999):
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
SEQUENCES = """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8, padding_idx=0)
        self.cells = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, tokens):
        states, last = self.cells(self.words(tokens))
        return self.head(SUMMARY)

model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(8):
    tokens = torch.randint(1, 20, (16, 6))
    tokens[:8, 4:] = 0
    loss = F.cross_entropy(model(tokens), (tokens[:, 1] > 9).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LAST = SEQUENCES.replace("SUMMARY", "states[:, -1]")
MEAN = SEQUENCES.replace("SUMMARY", "states.mean(dim=1)")
MASKED = SEQUENCES.replace(
    "SUMMARY", "(states * (mask := tokens.ne(0)[..., None])).sum(1) / mask.sum(1)"
)
CLASSES = """
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(SHARE), nn.Linear(16, 2), nn.LAST())
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(8):
    x = torch.randn(32, 5)
    loss = F.cross_entropy(model(x), (x[:, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CLIPPED = CLASSES.replace("LAST", "ReLU").replace("SHARE", "0.1")
DROPPED = CLASSES.replace("LAST", "Identity").replace("SHARE", "0.9")
PLAIN = CLASSES.replace("LAST", "Identity").replace("SHARE", "0.5")


def said(program: str, folder: Path) -> Verdict:
    path = folder / "train.py"
    path.write_text(BEGIN + program)
    with agviz.trace(path=folder / "t.agviz"):
        runpy.run_path(str(path))
    with Trace.open(folder / "t.agviz") as trace:
        (found,) = verdicts(trace)
    return found


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize(
    ("program", "heading", "line"),
    [
        (AVERAGE, "shadow still is 99.6% its start", "shadow.lerp_(own, 1 - self.decay)"),
        (LAST, "the last place of what cells gives", "return self.head(states[:, -1])"),
        (MEAN, "over sequences with their padding", "return self.head(states.mean(dim=1))"),
        (CLIPPED, "cross_entropy is given the output of a ReLU", "loss = F.cross_entropy("),
        (DROPPED, "dropout of 0.9 leaves 0.1", "model = nn.Sequential("),
    ],
)
def test_what_may_be_meant_is_shown_with_its_line(
    program: str, heading: str, line: str, tmp_path: Path
) -> None:
    found = said(program, tmp_path)
    assert found.outcome is Outcome.CANT_TELL
    assert heading in found.heading
    assert found.source.startswith(line)
    assert "all is well" in found.paragraph
    assert len(found.paragraph.split()) <= 70


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("program", [AVERAGE.replace("0.9999", "0.99"), MASKED, PLAIN])
def test_of_what_is_like_it_nothing_is_said(program: str, tmp_path: Path) -> None:
    assert said(program, tmp_path).outcome is Outcome.NOTHING_UNUSUAL
