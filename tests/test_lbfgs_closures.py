"""A closure that LBFGS calls again, and whose graph was made outside of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("engine", ["exact", "native"])
def test_what_is_computed_outside_of_it_is_named(tmp_path: Path, engine: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    with agviz.trace(path=tmp_path / "t.agviz", engine=engine):
        guess = model(torch.randn(16, 4))

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = guess.square().mean()
            loss.backward()
            return loss

        with pytest.raises(RuntimeError, match="a second time"):
            optimizer.step(closure)
    with Trace.open(tmp_path / "t.agviz") as trace:
        (verdict,) = verdicts(trace)
    assert verdict.heading.startswith("backward through the graph a second time")
    assert "LBFGS calls closure() several times in a step" in verdict.paragraph
    assert verdict.paragraph.endswith("Compute it anew inside of closure().")
