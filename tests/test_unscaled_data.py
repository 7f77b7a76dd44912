"""Data with huge values, which the gradients of the weights behind them prove."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict


def trained(
    path: Path, model: nn.Module, batch: Callable[[], Tensor], *, scale: float = 1.0
) -> Verdict:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with agviz.trace(path=path):
        for _ in range(6):
            optimizer.zero_grad()
            x = batch()
            out = model(x)  # applied
            (scale * (out.mean(tuple(range(1, out.dim()))) - 1).square().mean()).backward()
            optimizer.step()
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


def one_column() -> Tensor:
    """Four columns, one of which is a flag that was divided by next to 0."""
    return torch.cat([torch.randn(8, 3), (torch.rand(8, 1) < 0.3) / 1e-8], 1)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), one_column),
    "convolution": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Conv1d(4, 1, 3)),
        lambda: torch.rand(6, 2, 9) * 1.7e9,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_huge_values_in_data_are_named(case: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, batch = CASES[case]
    found = trained(tmp_path / "t.agviz", model(), batch)
    assert found.heading.startswith("0.weight is multiplied by data with values of ")
    assert found.source.endswith("# applied")
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120
    assert float(found.heading.split()[-3]) <= 1.7e9


@pytest.mark.parametrize("behind", ["batch norm", "layer norm", "small data", "large loss"])
def test_what_is_normalised_or_small_is_not(behind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    middle = {"batch norm": nn.BatchNorm1d(8), "layer norm": nn.LayerNorm(8)}
    layers = [nn.Linear(4, 8), *filter(None, [middle.get(behind)]), nn.ReLU(), nn.Linear(8, 1)]
    scale = 1e12 if behind == "large loss" else 1.0

    def batch() -> Tensor:
        return torch.randn(8, 4) if scale > 1 or behind == "small data" else one_column()

    found = trained(tmp_path / "t.agviz", nn.Sequential(*layers), batch, scale=scale)
    assert "multiplied by data" not in found.heading
