"""Steps that are far too large by decay, or too small by clipping; what is meant is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch.optim import Optimizer

    from agviz.analysis.verdict import Verdict


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))


def told(
    tmp_path: Path,
    optimize: Callable[[nn.Sequential], Optimizer],
    *,
    noise: float = 1.0,
    clip: Callable[[nn.Sequential], object] = nn.Module.train,
) -> tuple[Verdict, ...]:
    torch.manual_seed(0)
    model = network()
    x = torch.randn(64, 6)
    y = x[:, :1] * (1 - noise) + noise * torch.randn(64, 1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        optimizer = optimize(model)
        for _ in range(60):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            clip(model)
            optimizer.step()
    with Trace.open(tmp_path / "t.agviz") as trace:
        return verdicts(trace)


def decoupled(model: nn.Sequential) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=20.0)


def added(model: nn.Sequential) -> Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=10.0)


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("optimize", [decoupled, added])
def test_a_decay_that_outweighs_gradients_is_told(
    tmp_path: Path, optimize: Callable[[nn.Sequential], Optimizer]
) -> None:
    (found,) = told(tmp_path, optimize)
    assert found.is_found
    assert found.source.startswith("return torch.optim.Adam")
    assert "pulls weights to nothing" in found.heading


def usual(model: nn.Sequential) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


def strong_and_yet_it_learns(model: nn.Sequential) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=1.0)


def of_gates_only(model: nn.Sequential) -> Optimizer:
    groups: list[dict[str, Any]] = [
        {"params": [model[0].bias], "weight_decay": 0.5},
        {"params": [model[0].weight, *model[2].parameters()]},
    ]
    return torch.optim.SGD(groups, lr=0.1)


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    ("optimize", "noise"), [(usual, 1.0), (strong_and_yet_it_learns, 0.0), (of_gates_only, 1.0)]
)
def test_a_decay_that_leaves_weights_is_not(
    tmp_path: Path, optimize: Callable[[nn.Sequential], Optimizer], noise: float
) -> None:
    assert not any(found.is_found for found in told(tmp_path, optimize, noise=noise))


def plain(model: nn.Sequential) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)


def by_norm(model: nn.Sequential) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1e-4)  # cause


def by_value(model: nn.Sequential) -> None:
    nn.utils.clip_grad_value_(model.parameters(), 1e-5)  # cause


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("clip", [by_norm, by_value])
def test_a_clip_that_leaves_next_to_nothing_is_told(
    tmp_path: Path, clip: Callable[[nn.Sequential], object]
) -> None:
    (found,) = told(tmp_path, plain, clip=clip)
    assert found.is_found
    assert found.heading == "next to nothing of the gradients reaches SGD"
    assert len(found.paragraph.split()) <= 70


def with_a_large_rate(model: nn.Sequential) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=300.0)


def normalising(model: nn.Sequential) -> Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def slow(model: nn.Sequential) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def usual_norm(model: nn.Sequential) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    ("optimize", "clip"), [(with_a_large_rate, by_norm), (normalising, by_norm), (slow, usual_norm)]
)
def test_a_clip_that_lets_parameters_move_is_not(
    tmp_path: Path,
    optimize: Callable[[nn.Sequential], Optimizer],
    clip: Callable[[nn.Sequential], object],
) -> None:
    assert not any(found.is_found for found in told(tmp_path, optimize, clip=clip))
