"""Targets that a network makes of its own output: said where gradients go into them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict

NET = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
STILL = copy.deepcopy(NET).requires_grad_(False)
HEAD = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
BACK = nn.Linear(3, 4).requires_grad_(False)
TAKEN = torch.tensor([0, 2, 1, 1, 0])
REWARD, GOES_ON = torch.randn(5), torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0])


def states() -> Tensor:
    return torch.randn(5, 4)


def of_actions() -> Tensor:
    chosen = NET(states()).gather(1, TAKEN[:, None]).squeeze(1)
    target = REWARD + 0.9 * GOES_ON * NET(states()).max(1)[0]  # target
    return functional.smooth_l1_loss(chosen, target)


def of_values() -> Tensor:
    ahead = NET(states())[:, 0]
    target = 0.99 * ahead + REWARD  # target
    loss: Tensor = (target - NET(states())[:, 0]).pow(2).mean()
    return loss


def by_torch() -> Tensor:
    target = REWARD + 0.9 * NET(states())[:, 0]  # target
    return functional.mse_loss(NET(states())[:, 0], target)


def detached() -> Tensor:
    target = REWARD + 0.9 * NET(states())[:, 0].detach()
    return functional.mse_loss(NET(states())[:, 0], target)


def of_a_target_network() -> Tensor:
    return functional.mse_loss(NET(states())[:, 0], REWARD + 0.9 * STILL(states())[:, 0])


def of_two_views() -> Tensor:
    x = states()
    one, other = (NET(x + 0.1 * torch.randn(5, 4)) for _ in range(2))
    loss: Tensor = functional.mse_loss(one, other) + (one * 2 + 1 - (other * 2 + 1)).square().mean()
    return loss


def smooth() -> Tensor:
    out = NET(states())[:, 0]
    loss: Tensor = (out[1:] - (0.9 * out[:-1] + 0.1)).square().mean()
    return loss


def of_triplets() -> Tensor:
    anchor, same, other = NET(states()), NET(states()), NET(states())
    near, far = (anchor - same).square().sum(1), (anchor - other).square().sum(1)
    loss: Tensor = (near - far + 1).relu().mean()
    return loss


def of_two_networks() -> Tensor:
    student = nn.Linear(4, 3)
    return functional.mse_loss(student(states()), 0.5 * NET(states()) + 0.5)


def by_cosine() -> Tensor:
    made, other = NET(states()), NET(states())
    return -functional.cosine_similarity(HEAD(made), other, dim=-1).mean()  # target


def by_normalised() -> Tensor:
    made, other = NET(states()), NET(states())
    held = functional.normalize(other, dim=1)  # target
    loss: Tensor = 2 - 2 * (functional.normalize(HEAD(made), dim=1) * held).sum(1).mean()
    return loss


def of_the_next_state() -> Tensor:
    return functional.mse_loss(HEAD(NET(states())), NET(states()))  # target


def of_a_stopped_view() -> Tensor:
    made, other = NET(states()), NET(states()).detach()
    return -functional.cosine_similarity(HEAD(made), other, dim=-1).mean()


def held_apart() -> Tensor:
    made, other = HEAD(NET(states())), NET(states())
    near = functional.cosine_similarity(made[:, None], other[None], dim=-1)
    return functional.cross_entropy(near, torch.arange(5))


def of_a_reconstruction() -> Tensor:
    code = NET(states())
    return functional.mse_loss(NET(BACK(code)), code)


def of_data_with_a_gradient() -> Tensor:
    points = states().requires_grad_()
    return functional.mse_loss(NET(points), points[:, :3].square())


def told(loss: Callable[[], Tensor], path: Path) -> Verdict:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(NET.parameters(), lr=0.01)
    with agviz.trace(path=path):
        for _ in range(3):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("loss", [of_actions, of_values, by_torch])
def test_a_target_that_is_trained(loss: Callable[[], Tensor], tmp_path: Path) -> None:
    found = told(loss, tmp_path / "t.agviz")
    assert found.outcome is Outcome.CANT_TELL
    assert found.heading.startswith("the target of the loss is trained, too")
    assert found.source.endswith("# target")


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("loss", [by_cosine, by_normalised, of_the_next_state])
def test_a_target_that_is_predicted(loss: Callable[[], Tensor], tmp_path: Path) -> None:
    found = told(loss, tmp_path / "t.agviz")
    assert found.outcome is Outcome.CANT_TELL
    assert found.heading.endswith("it comes from the layers that predict it")
    assert found.source.endswith("# target")


@pytest.mark.slow_but_one_in(12)
@pytest.mark.parametrize(
    "loss",
    [
        *(detached, of_a_target_network, of_two_views, smooth, of_triplets, of_two_networks),
        *(of_a_stopped_view, held_apart, of_a_reconstruction, of_data_with_a_gradient),
    ],
)
def test_a_target_that_is_not_or_that_is_meant_to_be(
    loss: Callable[[], Tensor], tmp_path: Path
) -> None:
    assert told(loss, tmp_path / "t.agviz").outcome is Outcome.NOTHING_UNUSUAL
