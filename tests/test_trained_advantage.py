"""Advantages into which the policy's loss sends gradients, though they are a critic's estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Normal
from torch.nn import functional

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict

BODY = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
POLICY, CRITIC, SCALE = nn.Linear(16, 2), nn.Linear(16, 1), nn.Parameter(torch.zeros(2))


def acted() -> tuple[Tensor, Tensor, Tensor]:
    """What the policy and the critic say of states, and what came of it."""
    hidden = BODY(torch.randn(32, 4))
    return POLICY(hidden), CRITIC(hidden).squeeze(-1), torch.randn(32)


def by_categories() -> Tensor:
    said, value, came = acted()
    chances = Categorical(logits=said)
    better = came - value  # advantage
    loss: Tensor = (
        -(chances.log_prob(chances.sample()) * better).mean() + (came - value).pow(2).mean()
    )
    return loss


def by_normals() -> Tensor:
    said, value, came = acted()
    chances = Normal(said, SCALE.exp())
    chance = chances.log_prob(chances.sample()).sum(-1)
    better = came - value
    better = (better - better.mean()) / (better.std() + 1e-8)  # advantage
    loss: Tensor = functional.smooth_l1_loss(value, came) - (chance * better).mean()
    return loss


def clipped() -> Tensor:
    said, value, came = acted()
    chances = Bernoulli(logits=said[:, 0])
    drawn = chances.sample()
    ratio = (chances.log_prob(drawn) - chances.log_prob(drawn).detach()).exp()
    better = came - value  # advantage
    least = torch.min(ratio * better, ratio.clamp(0.8, 1.2) * better)
    loss: Tensor = 0.5 * functional.mse_loss(value, came) - least.mean()
    return loss


def rolled_out(*, detached: bool = False) -> Tensor:
    chances, values, came = [], [], torch.randn(5, 32)
    for _ in range(5):
        said, value, _ = acted()
        of = Normal(said[:, 0], SCALE[0].exp())
        chances.append(of.log_prob(of.sample()))
        values.append(value)
    value = torch.stack(values)
    better = came - (value.detach() if detached else value)  # advantage
    critics: Tensor = 0.5 * functional.mse_loss(value, came)
    return critics - (torch.stack(chances) * better).mean()


def rolled_out_and_detached() -> Tensor:
    return rolled_out(detached=True)


def detached() -> Tensor:
    said, value, came = acted()
    chances = Categorical(logits=said)
    better = came - value.detach()
    loss: Tensor = (
        -(chances.log_prob(chances.sample()) * better).mean() + (came - value).pow(2).mean()
    )
    return loss


def weighted_by_what_is_learned() -> Tensor:
    said, value, _ = acted()
    of_each = functional.cross_entropy(said, torch.randint(2, (32,)), reduction="none")
    loss: Tensor = (of_each * (1 - value.sigmoid()) + value.sigmoid()).mean()
    return loss


def of_mixed_tasks() -> Tensor:
    said, value, came = acted()
    of_each = functional.cross_entropy(said, torch.randint(2, (32,)), reduction="none")
    loss: Tensor = of_each.mean() + (0.5 * (value - came)).pow(2).mean()
    return loss


def told(loss: Callable[[], Tensor], path: Path) -> Verdict:
    torch.manual_seed(0)
    parameters = [*BODY.parameters(), *POLICY.parameters(), *CRITIC.parameters(), SCALE]
    optimizer = torch.optim.SGD(parameters, lr=0.001)
    with agviz.trace(path=path):
        for _ in range(3):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


@pytest.mark.parametrize("loss", [by_categories, by_normals, clipped, rolled_out])
def test_an_advantage_that_is_trained(loss: Callable[[], Tensor], tmp_path: Path) -> None:
    found = told(loss, tmp_path / "t.agviz")
    assert found.outcome is Outcome.FOUND
    assert found.heading.startswith("the advantage is not detached")
    assert found.source.endswith("# advantage")


@pytest.mark.parametrize(
    "loss", [detached, rolled_out_and_detached, weighted_by_what_is_learned, of_mixed_tasks]
)
def test_what_is_no_advantage(loss: Callable[[], Tensor], tmp_path: Path) -> None:
    found = told(loss, tmp_path / "t.agviz")
    assert "advantage" not in found.heading
