"""Recurrences whose state is detached at each step: said where the forward was recorded."""

from __future__ import annotations

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

CELL, LSTM, OUT = nn.GRUCell(3, 6), nn.LSTMCell(3, 6), nn.Linear(6, 2)
STEPS = 8


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(4, STEPS, 3), torch.zeros(4, 6), torch.randint(2, (4,))


def at_each_step() -> Tensor:
    x, h, y = drawn()
    for t in range(STEPS):
        h = CELL(x[:, t], h.detach())  # cut
    return functional.cross_entropy(OUT(h), y)


def of_both_states() -> Tensor:
    x, h, y = drawn()
    c = h
    for t in range(STEPS):
        h, c = h.detach(), c.detach()  # cut
        h, c = LSTM(x[:, t], (h, c))
    return functional.cross_entropy(OUT(h), y)


def between_sequences() -> Tensor:
    x, h, y = drawn()
    for t in range(STEPS):
        h = CELL(x[:, t], h)
        if t == STEPS // 2:
            h = h.detach()
    return functional.cross_entropy(OUT(h), y)


def with_a_loss_of_each_step() -> Tensor:
    x, h, y = drawn()
    loss = torch.zeros(())
    for t in range(STEPS):
        h = CELL(x[:, t], h.detach())
        loss = loss + functional.cross_entropy(OUT(h), y)
    return loss


def without_graphs_before_the_last() -> Tensor:
    x, h, y = drawn()
    with torch.no_grad():
        for t in range(STEPS - 1):
            h = CELL(x[:, t], h)
    return functional.cross_entropy(OUT(CELL(x[:, -1], h)), y)


def told(loss: Callable[[], Tensor], path: Path) -> Verdict:
    modules = CELL, LSTM, OUT
    optimizer = torch.optim.SGD([p for each in modules for p in each.parameters()], lr=0.01)
    with agviz.trace(path=path, check_forward=True):
        for _ in range(3):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("loss", [at_each_step, of_both_states])
def test_a_state_that_is_cut_at_each_step(loss: Callable[[], Tensor], tmp_path: Path) -> None:
    found = told(loss, tmp_path / "t.agviz")
    assert found.outcome is Outcome.CANT_TELL
    assert found.heading.startswith("only the last step of a recurrence is trained")
    assert found.source.endswith("# cut")


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "loss", [between_sequences, with_a_loss_of_each_step, without_graphs_before_the_last]
)
def test_cuts_that_are_meant(loss: Callable[[], Tensor], tmp_path: Path) -> None:
    assert "recurrence" not in told(loss, tmp_path / "t.agviz").heading
