"""A loop without progress is named while it runs; what counts its turns, or moves, is not."""

from __future__ import annotations

import itertools
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis.no_progress import NoProgress, no_progress
from agviz.traces import forward
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.database import Database

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
                if self.is_written(trace):
                    raise AskedError(no_progress(trace))
            time.sleep(0.05)
        raise AssertionError("the file did not grow")

    def is_written(self, trace: Trace) -> bool:
        """Whether so much is in the file that something may be said."""
        return len(trace.graph_tasks) > TURNS - 10


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


class Watch:
    """Tells by a property whether time is up."""

    def __init__(self) -> None:
        self.end = time.monotonic() + 1_000

    @property
    def is_up(self) -> bool:
        return time.monotonic() > self.end


def measures(weight: nn.Parameter, ask: Callable[[], None]) -> None:
    watch = Watch()
    while not watch.is_up:
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


def asks_in_vain(weight: nn.Parameter, ask: Callable[[], None]) -> None:
    before, rate = backward(weight), 1.0
    while True:
        with torch.no_grad():
            loss = (weight + rate * 0.0).square().sum()
        if loss < before:  # the end
            return
        rate *= 0.5
        ask()


def draws(weight: nn.Parameter, ask: Callable[[], None]) -> None:
    backward(weight)
    while (weight.detach() + torch.rand(3)).sum() > 0:
        ask()


class AskingOfFunctions(Asking):
    """The same, where the loop calls no backward."""

    def is_written(self, trace: Trace) -> bool:
        last = trace.last_forward_ops(1)
        return bool(last) and last[0].id > TURNS


@pytest.mark.parametrize(("loop", "is_endless"), [(asks_in_vain, True), (draws, False)])
def test_a_loop_of_functions_that_give_the_same_is_named(
    loop: Callable[[nn.Parameter, Callable[[], None]], None], is_endless: bool, tmp_path: Path
) -> None:
    path, weight = tmp_path / "t.agviz", nn.Parameter(torch.ones(3))
    with pytest.raises(AskedError) as raised, agviz.trace(path=path, check_forward=True):
        loop(weight, AskingOfFunctions(path))
    found = raised.value.found
    assert (found is not None) is is_endless
    if found is not None:
        lines = Path(__file__).read_text(encoding="utf-8").splitlines()
        assert lines[found.frame.line - 1].endswith("# the end")
        assert "calls no backward" in found.paragraph


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("loop", [counts, moves, trains, measures])
def test_what_may_come_to_its_end_is_left_alone(
    loop: Callable[[nn.Parameter, Callable[[], None]], None], tmp_path: Path
) -> None:
    assert said(loop, tmp_path / "t.agviz") is None


def test_functions_that_are_written_meanwhile_are_not_read_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path, check_forward=True):
        weight = nn.Parameter(torch.ones(3))
        sum((weight * k).sum() for k in range(1, 9)).backward()  # type: ignore[union-attr]
    read = forward._tensors

    def written(database: Database, *others: Any) -> Any:
        with sqlite3.connect(path) as connection:
            names = [row[1] for row in connection.execute("PRAGMA table_info(forward_op)")]
            kept = ", ".join(name if name != "id" else "id + 1000" for name in names)
            connection.execute(f"INSERT INTO forward_op SELECT {kept} FROM forward_op")  # noqa: S608
        return read(database, *others)

    with Trace.open(path) as trace:
        before = trace.last_forward_ops(4)
    monkeypatch.setattr(forward, "_tensors", written)
    with Trace.open(path) as trace:
        assert trace.last_forward_ops(4) == before
