"""Values that are learnt from those of later states: whether the ends of episodes are minded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict


def drawn() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    state = torch.randn(16, 4)
    return state, state[:, 0], state + 0.1 * torch.randn(16, 4), torch.rand(16) < 0.1


def missed(values: nn.Module, state: Tensor, target: Tensor) -> Tensor:
    return nn.functional.mse_loss(values(state).squeeze(-1), target)


def trained(wanted: Callable[[nn.Module], Tensor]) -> None:
    values = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(values.parameters(), lr=1e-3)
    for _ in range(6):
        loss = wanted(values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def goes_on(values: nn.Module) -> Tensor:
    state, reward, following, done = drawn()
    with torch.no_grad():
        target = reward + 0.99 * values(following).squeeze(-1)  # cause
    print(f"{int(done.sum())} ended")
    return missed(values, state, target)


def masked(values: nn.Module) -> Tensor:
    state, reward, following, done = drawn()
    with torch.no_grad():
        later = values(following).squeeze(-1)
        later[done] = 0.0
        target = reward + 0.99 * later
    return missed(values, state, target)


def multiplied(values: nn.Module) -> Tensor:
    gamma = 0.99
    state, reward, following, done = drawn()
    discount = gamma * (~done).float()
    with torch.no_grad():
        target = reward + discount * values(following).squeeze(-1)
    return missed(values, state, target)


def chosen(values: nn.Module) -> Tensor:
    state, reward, following, done = drawn()
    target = torch.zeros(16)
    for row, over in enumerate(done.tolist()):
        target[row] = reward[row]
        if not over:
            with torch.no_grad():
                target[row] = reward[row] + 0.99 * values(following[row])[0]
    return missed(values, state, target)


def summed(values: nn.Module) -> Tensor:
    gamma = 0.9
    state, reward, _, done = drawn()
    total = torch.zeros(())
    returns: list[Tensor] = []
    for each in reward.flip(0):
        total = each + gamma * total
        returns.insert(0, total)
    assert done.shape == reward.shape
    return missed(values, state, torch.stack(returns))


def said(path: Path, wanted: Callable[[nn.Module], Tensor]) -> Verdict:
    torch.manual_seed(0)
    with agviz.trace(path=path):
        trained(wanted)
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


def test_values_beyond_an_end_that_is_known_are_shown(tmp_path: Path) -> None:
    found = said(tmp_path / "t.agviz", goes_on)
    assert found.outcome is Outcome.CANT_TELL
    assert found.source.endswith("# cause")
    assert "(1 - done)" in found.paragraph
    assert len(found.paragraph.split()) <= 70


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("wanted", [masked, multiplied, chosen, summed])
def test_what_minds_the_end_is_left_alone(
    tmp_path: Path, wanted: Callable[[nn.Module], Tensor]
) -> None:
    assert said(tmp_path / "t.agviz", wanted).outcome is Outcome.NOTHING_UNUSUAL
