"""Straight-through estimators the wrong way round are named; what only looks so is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Middle = Callable[[Tensor, Tensor], Tensor]


def looked_up(z: Tensor, codes: Tensor) -> Tensor:
    return codes[torch.cdist(z.detach(), codes.detach()).argmin(1)]


def by_one_hot(z: Tensor, codes: Tensor) -> Tensor:
    with torch.no_grad():
        chosen = nn.functional.one_hot((z @ codes.T).argmax(1), len(codes)).float()
    return chosen @ codes


def lookup_reversed(z: Tensor, codes: Tensor) -> Tensor:
    q = looked_up(z, codes)
    return q + (z - q).detach()  # cause


def one_hot_reversed(z: Tensor, codes: Tensor) -> Tensor:
    q = by_one_hot(z, codes)
    with torch.no_grad():
        less = z - q
    return less + q  # cause


def straight_through(z: Tensor, codes: Tensor) -> Tensor:
    q = looked_up(z, codes)
    return z + (q - z).detach() + 0.1 * q


def gradient_made_smaller(z: Tensor, codes: Tensor) -> Tensor:
    less = 0.1 * z
    return less + (z - less).detach() + codes.sum()


def surrogate(z: Tensor, codes: Tensor) -> Tensor:
    soft = torch.sigmoid(4 * z)
    return soft + ((z > 0).float() - soft).detach() + codes.sum()


def residual(z: Tensor, codes: Tensor) -> Tensor:
    first = looked_up(z, codes)
    rest = z - first.detach()
    second = looked_up(rest, codes)
    return z + (first + second - z).detach() + 0.1 * (first + second)


def trained(path: Path, middle: Middle) -> Path:
    torch.manual_seed(0)
    first, last, codes = nn.Linear(6, 4), nn.Linear(4, 6), nn.Parameter(torch.randn(8, 4))
    optimizer = torch.optim.Adam([*first.parameters(), *last.parameters(), codes], lr=1e-3)
    with agviz.trace(path=path, check_forward=True):
        for _ in range(6):
            x = torch.randn(16, 6)
            z = first(x)
            loss = (last(middle(z, codes)) - x).square().mean()
            loss = loss + 0.1 * (z - by_one_hot(z, codes).detach()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return path


@pytest.mark.parametrize("middle", [lookup_reversed, one_hot_reversed])
def test_what_is_the_wrong_way_round_is_named(middle: Middle, tmp_path: Path) -> None:
    with Trace.open(trained(tmp_path / "t.agviz", middle)) as trace:
        (found,) = verdicts(trace)
    assert isinstance(found.basis, StepFinding)
    assert found.basis.kind == "swapped"
    assert found.source.endswith("# cause")
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("middle", [straight_through, gradient_made_smaller, surrogate, residual])
def test_what_is_meant_is_left_alone(middle: Middle, tmp_path: Path) -> None:
    with Trace.open(trained(tmp_path / "t.agviz", middle)) as trace:
        (found,) = verdicts(trace)
    assert not found.is_found, found
