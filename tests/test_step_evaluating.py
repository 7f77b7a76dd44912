"""What stays on in a validation, since eval() does not reach it, is named; what is meant is not."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agviz.analysis.verdict import Verdict


class ForgetsTraining(nn.Module):
    """Leaves out whether it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        given: torch.Tensor = self.last(nn.functional.dropout(hidden, 0.3))  # cause
        return given


class FollowsTraining(ForgetsTraining):
    """Is as its mode is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given: torch.Tensor = self.last(
            nn.functional.dropout(torch.relu(self.first(x)), 0.3, self.training)
        )
        return given


class SampledPredictions(ForgetsTraining):
    """Its predictions are sampled on purpose."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given: torch.Tensor = self.last(
            nn.functional.dropout(torch.relu(self.first(x)), 0.3, training=True)
        )
        return given


class DropoutInForward(nn.Module):
    """Makes its dropout in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        drop = nn.Dropout(0.2)
        x = x[:, :, None].expand(-1, -1, 5)
        given: torch.Tensor = (x + drop(torch.relu(self.norm(self.conv(x))))).mean(2)  # cause
        return given


class OwnBatchNorm(nn.Module):
    """A batch norm of its own."""

    def __init__(self, *, follows: bool = False) -> None:
        super().__init__()
        self.linear, self.follows = nn.Linear(4, 4), follows
        self.mean, self.var = torch.zeros(4), torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        if self.follows:
            return nn.functional.batch_norm(x, self.mean, self.var, training=self.training)
        return nn.functional.batch_norm(x, self.mean, self.var, training=True)  # cause


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    was = model.training
    model.eval()
    with torch.no_grad():
        yield
    model.train(was)


def validated(model: nn.Module) -> None:
    model.eval()
    with torch.inference_mode():
        model(torch.randn(8, 4))
    model.train()


def validated_within(model: nn.Module) -> None:
    with evaluating(model):
        model(torch.randn(8, 4))


def looked_at(model: nn.Module) -> None:
    """In training mode, as statistics are estimated anew."""
    with torch.no_grad():
        model(torch.randn(8, 4))


def said(path: Path, model: nn.Module, validation: Callable[[nn.Module], None]) -> Verdict:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with agviz.trace(path=path, check_forward=True):
        for _ in range(6):
            x = torch.randn(8, 4)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            validation(model)
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize(
    ("model", "validation", "words"),
    [
        (ForgetsTraining(), validated, "unless it is given what to do"),
        (DropoutInForward(), validated, "made anew"),
        (nn.Sequential(DropoutInForward(), nn.Dropout(0.1)), validated_within, "made anew"),
        (OwnBatchNorm(), validated, "always True"),
    ],
)
def test_what_eval_does_not_reach_is_named(
    tmp_path: Path, model: nn.Module, validation: Callable[[nn.Module], None], words: str
) -> None:
    found = said(tmp_path / "t.agviz", model, validation)
    assert found.is_found
    assert found.source.endswith("# cause")
    assert words in found.paragraph


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    ("model", "validation"),
    [
        (FollowsTraining(), validated),
        (SampledPredictions(), validated),
        (OwnBatchNorm(follows=True), validated),
        (OwnBatchNorm(), validated_within),  # whether it is in evaluation mode is not seen
        (OwnBatchNorm(), looked_at),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)), validated),
    ],
)
def test_what_is_meant_is_left_alone(
    tmp_path: Path, model: nn.Module, validation: Callable[[nn.Module], None]
) -> None:
    assert not said(tmp_path / "t.agviz", model, validation).is_found
