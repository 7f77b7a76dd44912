"""Terms of a loss, and models, that may be meant: they are shown and not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict


def rewarded_less() -> None:
    policy = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    for _ in range(5):
        actions = torch.distributions.Categorical(logits=policy(torch.randn(16, 4)))
        taken = actions.sample()
        chosen = actions.log_prob(taken)
        loss = (chosen * (taken == 1).float()).mean()  # cause
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def rewarded_more() -> None:
    policy = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    for _ in range(5):
        actions = torch.distributions.Categorical(logits=policy(torch.randn(16, 4)))
        taken = actions.sample()
        chosen = -actions.log_prob(taken)
        loss = (chosen * (taken == 1).float()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def entropy_added() -> None:
    policy, value = nn.Linear(4, 3), nn.Linear(4, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=0.01)
    for _ in range(5):
        state = torch.randn(16, 4)
        actions = torch.distributions.Categorical(logits=policy(state))
        taken = actions.sample()
        reward = (taken == 1).float()
        guess = value(state).squeeze(-1)
        gained = -(actions.log_prob(taken) * (reward - guess.detach())).mean()
        missed = functional.mse_loss(guess, reward)
        spread = actions.entropy().mean()  # cause
        total = gained + 0.5 * missed + 0.01 * spread
        optimizer.zero_grad()
        total.backward()
        optimizer.step()


def entropy_taken_away() -> None:
    policy = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    for _ in range(5):
        actions = torch.distributions.Categorical(logits=policy(torch.randn(16, 4)))
        taken = actions.sample()
        gained = actions.log_prob(taken) * (taken == 1).float()
        loss = -gained.mean() - 0.01 * actions.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def divergence_weighed() -> None:
    encoder = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
    prior = torch.distributions.Normal(0.0, 1.0)
    for step in range(5):
        x = torch.randn(16, 4)
        of = torch.distributions.Normal(encoder(x), 0.5)
        z = of.rsample()
        apart = (of.log_prob(z) - prior.log_prob(z)).sum(1).mean()
        weight = 0.1 * step
        loss = (z - x[:, :2]).square().mean() + weight * apart
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def straight() -> None:
    first, second = nn.Linear(6, 16), nn.Linear(16, 4)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    for _ in range(5):
        hidden = first(torch.randn(16, 6))
        optimizer.zero_grad()
        functional.cross_entropy(second(hidden), torch.randint(0, 4, (16,))).backward()  # cause
        optimizer.step()


def bent() -> None:
    first, second = nn.Linear(6, 16), nn.Linear(16, 4)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    for _ in range(5):
        hidden = functional.silu(first(torch.randn(16, 6)))
        optimizer.zero_grad()
        functional.cross_entropy(second(hidden), torch.randint(0, 4, (16,))).backward()
        optimizer.step()


def of_low_rank() -> None:
    down, up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
    optimizer = torch.optim.Adam([*down.parameters(), *up.parameters()], lr=0.01)
    for _ in range(5):
        x = torch.randn(16, 16)
        optimizer.zero_grad()
        functional.mse_loss(up(down(x)), x).backward()
        optimizer.step()


def said(path: Path, program: Callable[[], None]) -> Verdict:
    """Of a recording of a program, which is said to be one thing."""
    torch.manual_seed(0)
    with agviz.trace(path=path):
        program()
    with Trace.open(path) as trace:
        (verdict,) = verdicts(trace)
    return verdict


@pytest.mark.slow_but_one_in(5)
@pytest.mark.parametrize("program", [rewarded_less, entropy_added, straight])
def test_what_may_be_meant_is_shown_with_its_line(
    program: Callable[[], None], tmp_path: Path
) -> None:
    verdict = said(tmp_path / "t.agviz", program)
    assert verdict.outcome is Outcome.CANT_TELL
    assert verdict.source.endswith("# cause")
    assert len(f"{verdict.heading} {verdict.paragraph}".split()) <= 120


@pytest.mark.slow_but_one_in(5)
@pytest.mark.parametrize(
    "program", [rewarded_more, entropy_taken_away, divergence_weighed, bent, of_low_rank]
)
def test_what_is_as_it_should_be_is_not(program: Callable[[], None], tmp_path: Path) -> None:
    assert said(tmp_path / "t.agviz", program).outcome is Outcome.NOTHING_UNUSUAL
