"""Losses that are given probabilities are named; those that are given what they take are not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.analysis.verdict import Verdict

CLASSES = torch.tensor([0, 2, 1, 2])
SHARES = torch.tensor([[0.5, 0.3, 0.2]] * 4)
TRUE = torch.tensor([[0.0, 1.0, 1.0]] * 4)

WRONG: dict[str, tuple[str, str, Callable[[Tensor], Tensor]]] = {
    "cross entropy": (
        "cross_entropy",
        "softmax",
        lambda x: nn.functional.cross_entropy(x.softmax(1), CLASSES),
    ),
    "of a sigmoid": (
        "cross_entropy",
        "sigmoid",
        lambda x: nn.functional.cross_entropy(x.sigmoid(), CLASSES),
    ),
    "by images": (
        "cross_entropy",
        "softmax",
        lambda x: nn.functional.cross_entropy(
            x.view(1, 4, 3).softmax(2).transpose(1, 2), CLASSES[None]
        ),
    ),
    "with logits": (
        "binary_cross_entropy_with_logits",
        "sigmoid",
        lambda x: nn.functional.binary_cross_entropy_with_logits(x.sigmoid(), TRUE),
    ),
    "a divergence": (
        "kl_div",
        "softmax",
        lambda x: nn.functional.kl_div(x.softmax(1), SHARES, reduction="batchmean") * 4,
    ),
    "a divergence from logarithms": (
        "kl_div",
        "sigmoid",
        lambda x: nn.KLDivLoss(reduction="sum", log_target=True)(x.sigmoid(), SHARES.log()),
    ),
    "no log": ("nll_loss", "softmax", lambda x: nn.functional.nll_loss(x.softmax(1), CLASSES)),
}
RIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "logits": lambda x: nn.functional.cross_entropy(x, CLASSES),
    "log_softmax again": lambda x: nn.functional.cross_entropy(x.log_softmax(1), CLASSES),
    "logs": lambda x: nn.functional.nll_loss(x.softmax(1).log(), CLASSES),
    "of a probability": lambda x: nn.functional.binary_cross_entropy(x.sigmoid(), TRUE),
    "an attention in between": lambda x: nn.functional.cross_entropy(
        x.softmax(1) @ torch.eye(3), CLASSES
    ),
    "scaled cosines": lambda x: nn.functional.cross_entropy(x.sigmoid() * 16.0, CLASSES),
    "targets of a teacher": lambda x: nn.functional.kl_div(
        x.log_softmax(1), x.detach().softmax(1), reduction="batchmean"
    ),
    "targets that are trained": lambda x: nn.functional.kl_div(
        x[:2].log_softmax(1), x[2:].softmax(1), reduction="batchmean"
    ),
    "the same in logarithms": lambda x: nn.functional.kl_div(
        x[:2].log_softmax(1), x[2:].softmax(1).log(), log_target=True, reduction="batchmean"
    ),
    "entropy": lambda x: -(x.softmax(1) * x.log_softmax(1)).sum(1).mean(),
}


def recorded(loss: Callable[[Tensor], Tensor], path: Path) -> tuple[Verdict, ...]:
    torch.manual_seed(0)
    layer = nn.Linear(5, 3)
    with agviz.trace(path=path):
        loss(layer(torch.randn(4, 5))).backward()
    with Trace.open(path) as trace:
        return verdicts(trace)


@pytest.mark.parametrize("case", WRONG)
def test_the_loss_is_named(case: str, tmp_path: Path) -> None:
    name, function, loss = WRONG[case]
    (found,) = recorded(loss, tmp_path / "t.agviz")
    assert isinstance(found.basis, StepFinding)
    assert found.heading.startswith(f"{name} is given the output of a {function}")
    assert found.frame is not None
    assert Path(found.frame.file).name == Path(__file__).name
    assert len(f"{found.heading} {found.paragraph}".split()) <= 100


@pytest.mark.parametrize("case", RIGHT)
def test_what_it_takes_is_left_alone(case: str, tmp_path: Path) -> None:
    found = recorded(RIGHT[case], tmp_path / "t.agviz")
    assert [each.outcome for each in found] == [Outcome.NOTHING_UNUSUAL]
