"""A softmax over the samples is told, and others over a first dimension are not."""

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

    Pool = Callable[[Tensor, Tensor], Tensor]


def judged(path: Path, pool: Pool) -> Verdict:
    """Of two steps of a model that pools values [8, 5, 6] by queries of the same shape."""
    torch.manual_seed(0)
    values, queries, head = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 3)
    optimizer = torch.optim.SGD([*values.parameters(), *head.parameters()], lr=0.01)
    with agviz.trace(path=path, check_forward=True):
        for _ in range(2):
            x = torch.randn(8, 5, 4)
            pooled = pool(values(x), queries(x))
            functional.cross_entropy(head(pooled), torch.randint(0, 3, (8,))).backward()
            optimizer.step()
            optimizer.zero_grad()
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


def _scores(values: Tensor, queries: Tensor) -> Tensor:
    return queries @ values.transpose(1, 2)


def of_no_dimension(values: Tensor, queries: Tensor) -> Tensor:
    scores = _scores(values, queries)
    with pytest.warns(UserWarning, match="Implicit dimension"):
        weights: Tensor = nn.Softmax()(scores)  # cause
    return (functional.dropout(weights, 0.1) @ values).mean(1)


def of_an_equation(values: Tensor, queries: Tensor) -> Tensor:
    weights = queries.sum(-1).softmax(0)  # cause
    return torch.einsum("bp,bpd->bd", weights, values)


def of_a_transposed(values: Tensor, queries: Tensor) -> Tensor:
    weights = torch.softmax(_scores(values, queries), dim=0)  # cause
    return torch.bmm(weights.transpose(1, 2), values).mean(1)


def well(values: Tensor, queries: Tensor) -> Tensor:
    return (_scores(values, queries).softmax(-1) @ values).mean(1)


def with_steps_first(values: Tensor, queries: Tensor) -> Tensor:
    weights = queries.sum(-1).transpose(0, 1).softmax(0)
    return (weights.transpose(0, 1).unsqueeze(1) @ values).squeeze(1)


def of_slots(values: Tensor, queries: Tensor) -> Tensor:
    return (_scores(values, queries).softmax(1) @ values).mean(1)


def of_capsules(values: Tensor, queries: Tensor) -> Tensor:
    votes = torch.stack([values, queries])
    weights = votes.sum(-1).softmax(0)
    return torch.matmul(weights.unsqueeze(2), votes).squeeze(2).mean(0)


def of_a_target(values: Tensor, queries: Tensor) -> Tensor:
    weights = queries.softmax(0)
    shared = torch.einsum("bpd,bpd->bd", weights, torch.ones_like(values).detach())
    return values.mean(1) + shared


@pytest.mark.parametrize("pool", [of_no_dimension, of_an_equation, of_a_transposed])
def test_a_softmax_over_the_samples_is_told(tmp_path: Path, pool: Pool) -> None:
    found = judged(tmp_path / "t.agviz", pool)
    assert "a softmax is over the samples" in found.heading
    assert found.source.endswith("# cause")
    assert "of size 5" in found.paragraph
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


@pytest.mark.parametrize("pool", [well, with_steps_first, of_slots, of_capsules, of_a_target])
def test_others_are_not(tmp_path: Path, pool: Pool) -> None:
    assert "softmax" not in judged(tmp_path / "t.agviz", pool).heading
