"""Losses below zero that prove what they were given; those that may be are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict

LABELS = torch.arange(8) % 3


def trained(path: Path, loss: Callable[[Tensor], Tensor], passes: int = 16) -> Verdict:
    torch.manual_seed(0)
    with agviz.trace(path=path):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        data = torch.randn(8, 4)
        for _ in range(passes):
            value = loss(model(data))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


def masks(scores: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(scores[:, 0], 255.0 * (LABELS == 1))


WRONG: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "raw scores": ("nll_loss", lambda scores: functional.nll_loss(scores, LABELS)),
    "a mean of each": (
        "nll_loss",
        lambda scores: functional.nll_loss(scores, LABELS, reduction="none").mean(),
    ),
    "targets of 255": ("binary_cross_entropy_with_logits", masks),
}
MEANT: dict[str, Callable[[Tensor], Tensor]] = {
    "log-probabilities": lambda scores: functional.nll_loss(scores.log_softmax(1), LABELS),
    "a reward": lambda scores: (
        functional.nll_loss(scores.log_softmax(1), LABELS, reduction="none") * (LABELS - 1.0)
    ).mean(),
    "a likelihood": lambda scores: functional.gaussian_nll_loss(
        scores, 0.01 * torch.ones(8, 3), scores.square() + 0.01
    ),
}


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("name", WRONG)
def test_a_loss_that_can_not_be_below_zero_says_what_it_was_given(
    name: str, tmp_path: Path
) -> None:
    called, loss = WRONG[name]
    found = trained(tmp_path / "t.agviz", loss)
    assert found.heading.startswith(f"{called} is given ")
    assert "functional." in found.source
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


@pytest.mark.parametrize("name", MEANT)
def test_one_that_may_be_is_left_alone(name: str, tmp_path: Path) -> None:
    assert "is given" not in trained(tmp_path / "t.agviz", MEANT[name]).heading
