"""Five models as people train them: observed, they give the exact engine's events one by one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from agviz_engine.observe.observing_engine import observed
from tests.engine.oracle import assert_outcomes_equal, native_outcome, our_outcome, outcome_with
from tests.engine.test_observe import Kept, without_unknown

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow


def gradients(model: nn.Module) -> list[Any]:
    return [parameter.grad for parameter in model.parameters()]


def steps(model: nn.Module, loss_of: Callable[[], torch.Tensor]) -> list[Any]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found: list[Any] = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found += loss.detach(), *gradients(model)
    return found


def transformer() -> list[Any]:
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Embedding(50, 64), nn.TransformerEncoder(layer, 4), nn.Linear(64, 50))
    tokens = torch.randint(50, (4, 16))
    return steps(model, lambda: cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()))


class Residual(nn.Module):
    """Two convolutions around a batch norm, beside a way around."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.two(torch.relu(self.norm(self.one(x)))) + x)


def conv_net() -> list[Any]:
    blocks = [Residual(16) for _ in range(6)]
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    )
    x, y = torch.randn(4, 3, 20, 20), torch.randint(10, (4,))
    return steps(model, lambda: cross_entropy(model(x), y))


def recurrent() -> list[Any]:
    model = nn.ModuleDict({"cell": nn.LSTMCell(8, 32), "head": nn.Linear(32, 5)})
    x, y = torch.randn(20, 6, 8), torch.randint(5, (6,))

    def loss() -> torch.Tensor:
        state = None
        for each in x:
            state = model["cell"](each, state)
        assert state is not None
        scores: torch.Tensor = model["head"](state[0])
        return cross_entropy(scores, y)

    return steps(model, loss)


def checkpointed() -> list[Any]:
    blocks = nn.ModuleList(
        nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1))
        for _ in range(6)
    )
    x = torch.randn(4, 32, requires_grad=True)

    def loss() -> torch.Tensor:
        hidden = x
        for number, block in enumerate(blocks):
            hidden = hidden + checkpoint(block, hidden, use_reentrant=bool(number % 2))
        return hidden.square().mean()

    return steps(blocks, loss)


def critic() -> list[Any]:
    """With a penalty on the gradient of its input: backward through backward."""
    model = nn.Sequential(
        nn.Linear(8, 32), nn.Softplus(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    x = torch.randn(16, 8, requires_grad=True)

    def loss() -> torch.Tensor:
        score: torch.Tensor = model(x)
        (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        penalty: torch.Tensor = (slope.norm(dim=1) - 1).square().mean()
        return score.mean() + 10 * penalty

    return steps(model, loss)


@pytest.mark.parametrize(
    "model",
    [transformer, conv_net, recurrent, checkpointed, critic],
    ids=lambda model: model.__name__,
)
def test_the_same_events(model: Callable[[], list[Any]]) -> None:
    seen, exact = Kept(), Kept()
    runs = native_outcome, functools.partial(outcome_with, observed(seen))
    native, outcome = (run(model) for run in runs)
    assert_outcomes_equal(native, outcome)
    assert our_outcome(model, 0, exact).error is None
    ours = seen.plain()
    assert not [name for name, _ in ours if name == "InferenceWithdrawn"]
    assert len(ours) > 200
    assert ours == without_unknown(exact.plain(), ours)
