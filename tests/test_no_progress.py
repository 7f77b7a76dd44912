"""A loop without progress is named while it runs; what counts its turns, or moves, is not."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis.no_progress import NoProgress, no_progress
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS = 260


class AskedError(Exception):
    """Leaves the loop, with what was said meanwhile."""

    def __init__(self, found: NoProgress | None) -> None:
        self.found = found


class Asking:
    """Asks about a trace in the midst of a loop, once enough of it is in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.turns = itertools.count()

    def __call__(self) -> None:
        if next(self.turns) < TURNS:
            return
        for _ in range(200):
            with Trace.open(self.path) as trace:
                if len(trace.graph_tasks) > TURNS - 10:
                    raise AskedError(no_progress(trace))
            time.sleep(0.05)
        raise AssertionError("the file did not grow")


def backward(weight: nn.Parameter) -> float:
    weight.grad = None
    loss = weight.square().sum()
    loss.backward()
    return loss.item()


def never_accepts(weight: nn.Parameter, ask: Callable[[], None]) -> None:
    rate, before = 1.0, backward(weight)
    while True:
        with torch.no_grad():
            weight.copy_(weight + rate * 0.0)
        if backward(weight) < before - rate:  # the end
            return
        rate *= 0.5
        ask()


def never_small_enough(weight: nn.Parameter, ask: Callable[[], None]) -> None:
    loss = 1.0
    while loss > 1e-9:  # the end
        loss = backward(weight)
        ask()


def counts(weight: nn.Parameter, ask: Callable[[], None]) -> None:
    step = 0
    while step < 10_000:
        backward(weight)
        step += 1
        ask()


def moves(weight: nn.Parameter, ask: Callable[[], None]) -> None:
    while backward(weight) > 0:
        with torch.no_grad():
            weight.sub_(1e-4 * weight)
        ask()


def trains(weight: nn.Parameter, ask: Callable[[], None]) -> None:
    for _ in range(10_000):
        backward(weight)
        ask()


def said(loop: Callable[[nn.Parameter, Callable[[], None]], None], path: Path) -> NoProgress | None:
    weight = nn.Parameter(torch.ones(3))
    with pytest.raises(AskedError) as raised, agviz.trace(path=path):
        loop(weight, Asking(path))
    return raised.value.found


@pytest.mark.parametrize("loop", [never_accepts, never_small_enough])
def test_the_condition_is_named(
    loop: Callable[[nn.Parameter, Callable[[], None]], None], tmp_path: Path
) -> None:
    found = said(loop, tmp_path / "t.agviz")
    assert found is not None
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert lines[found.frame.line - 1].endswith("# the end")
    assert found.frame.function == loop.__name__
    assert found.ends


@pytest.mark.parametrize("loop", [counts, moves, trains])
def test_what_may_come_to_its_end_is_left_alone(
    loop: Callable[[nn.Parameter, Callable[[], None]], None], tmp_path: Path
) -> None:
    assert said(loop, tmp_path / "t.agviz") is None
