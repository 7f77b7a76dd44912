"""What each forward makes anew is told; what it makes on purpose is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.steps.asking import found_in_steps
from agviz.analysis.steps.run import RunSteps
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.analysis.steps.finding import StepFinding


class Base(nn.Module):
    """Two layers, and what its kinds make between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 1)
        self.kept: Any = None


class Adapter(nn.Module):
    """A module of the program's own."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.up = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.up(x))


class WithAdapter(Base):
    """Makes a module in a method of its own."""

    def adapt(self, hidden: Tensor) -> Any:
        return Adapter(8)(hidden)  # cause

    def forward(self, x: Tensor) -> Any:
        return self.last(self.adapt(self.first(x)))


class WithPositions(Base):
    """Makes a parameter."""

    def forward(self, x: Tensor) -> Any:
        position = nn.Parameter(torch.zeros(8))  # cause
        return self.last(self.first(x) + position)


class Normalised(Base):
    """Makes a parameter of the one that it had, which the optimizer holds."""

    def forward(self, x: Tensor) -> Any:
        self.last.weight = nn.Parameter(self.last.weight / 2)  # cause
        return self.last(self.first(x))


class Augmented(Base):
    """Each pass has another random layer on data."""

    def forward(self, x: Tensor) -> Any:
        mixed = nn.Linear(4, 4)(x)
        return self.last(self.first(mixed))


class Projected(Base):
    """Each pass has another random layer, which it freezes."""

    def forward(self, x: Tensor) -> Any:
        hidden = self.first(x)
        sketch = nn.Linear(8, 8).requires_grad_(False)
        return self.last(hidden + sketch(hidden))


class Lazy(Base):
    """The first pass makes a layer for all."""

    def forward(self, x: Tensor) -> Any:
        if self.kept is None:
            self.kept = [nn.Linear(8, 8)]
        return self.last(self.kept[0](self.first(x)))


class Latents(Base):
    """Fits latents to each batch, by an optimizer of their own."""

    def forward(self, x: Tensor) -> Any:
        latent = nn.Parameter(torch.zeros(len(x), 8))
        own = torch.optim.SGD([latent], lr=0.1)
        for _ in range(2):
            own.zero_grad()
            (self.last(latent) - x[:, :1]).square().mean().backward()
            own.step()
        return self.last(self.first(x) + latent)


class Plain(Base):
    """A layer norm without training: what is made anew does what is asked of it."""

    def forward(self, x: Tensor) -> Any:
        return self.last(nn.LayerNorm(8)(self.first(x)))


def told(tmp_path: Path, model: nn.Module) -> list[StepFinding]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with agviz.trace(path=tmp_path / "t.agviz"):
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    with Trace.open(tmp_path / "t.agviz") as trace:
        return [
            found
            for found in found_in_steps(trace, RunSteps(trace.beginning))
            if found.kind == "made in forward"
        ]


@pytest.mark.parametrize("kind", [WithAdapter, WithPositions, Normalised])
def test_what_each_forward_makes_is_told(tmp_path: Path, kind: type[Base]) -> None:
    (found,) = told(tmp_path, kind())
    assert found.frame is not None
    assert found.frame.source.endswith("# cause")
    assert len(found.paragraph.split()) <= 70
    assert ("last.weight of before" in found.paragraph) == (kind is Normalised)


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("kind", [Augmented, Projected, Lazy, Latents, Plain])
def test_what_is_made_on_purpose_is_not(tmp_path: Path, kind: type[Base]) -> None:
    assert not told(tmp_path, kind())
