"""An nn.Parameter that was converted as it was made: the line of the copy is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict


class Scaled(nn.Module):
    """Multiplies by what ``make`` gives."""

    def __init__(self, make: Callable[[], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.scale = make()

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.linear(value) * self.scale
        return found


def trained(path: Path, build: Callable[[], nn.Module]) -> Verdict:
    torch.manual_seed(0)
    with agviz.trace(path=path):
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(8):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


def test_the_line_that_copies_a_parameter_is_named(tmp_path: Path) -> None:
    def make() -> torch.Tensor:
        return nn.Parameter(torch.ones(1)).expand(2)  # cause

    found = trained(tmp_path / "t.agviz", lambda: Scaled(make))
    assert found.is_found
    assert found.source.endswith("# cause")
    assert "is a copy" in found.heading
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


def test_so_are_several(tmp_path: Path) -> None:
    def build() -> nn.Module:
        def make() -> torch.Tensor:
            return nn.Parameter(torch.ones(2, dtype=torch.float64)).float()  # cause

        return nn.Sequential(Scaled(make), nn.Linear(2, 4), Scaled(make))

    found = trained(tmp_path / "t.agviz", build)
    assert found.source.endswith("# cause")
    assert "2 nn.Parameters" in found.paragraph


def test_what_is_computed_anew_in_each_pass_is_no_copy(tmp_path: Path) -> None:
    free = nn.Parameter(torch.ones(2))

    class Uses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.linear(value) * (free * 0.5)
            return found

    found = trained(tmp_path / "t.agviz", Uses)
    assert "of no module" in found.heading


def test_a_parameter_converted_before_is_left_alone(tmp_path: Path) -> None:
    def make() -> torch.Tensor:
        return nn.Parameter(torch.ones(2, dtype=torch.float64).float())

    assert not trained(tmp_path / "t.agviz", lambda: Scaled(make)).is_found
