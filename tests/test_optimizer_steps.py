"""When optimizers step: begin, end, thread and class, held against a clock around the step."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

import pytest
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizers

import agviz
from agviz.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.traces.rows import OptimizerStepRow

ENGINES: tuple[Literal["exact", "native"], ...] = ("exact", "native")


class Slow(torch.optim.SGD):
    """Takes its time; raises where it is asked to."""

    fails = False

    def step(self, closure: Any = None) -> Any:
        time.sleep(0.003)
        if self.fails:
            raise RuntimeError("a step that fails")
        return None if closure is None else closure()


class Around(torch.optim.SGD):
    """Has another step inside of its own."""

    inner: torch.optim.Optimizer

    def step(self, closure: Any = None) -> Any:
        time.sleep(0.002)
        with contextlib.suppress(RuntimeError):
            self.inner.step()
        return None if closure is None else closure()


def clocked(act: Callable[[], Any]) -> tuple[int, int]:
    begin = time.monotonic_ns()
    act()
    return begin, time.monotonic_ns()


def steps_of(path: Path) -> list[OptimizerStepRow]:
    with agviz.Trace.open(path) as trace:
        return trace.optimizer_steps()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_is_inside_of_a_clock_around_it(
    tmp_path: Path, engine: Literal["exact", "native"]
) -> None:
    model = nn.Linear(3, 2)
    optimizers = [Slow(model.parameters(), 0.1), torch.optim.Adam(model.parameters())]
    clocks = []
    with agviz.trace(path=tmp_path / "t.agviz", engine=engine):
        for turn in range(6):
            model(torch.ones(1, 3)).sum().backward()
            clocks.append(clocked(optimizers[turn % 2].step))
    steps = steps_of(tmp_path / "t.agviz")
    assert [step.optimizer for step in steps] == ["Slow", "Adam"] * 3
    outside = []
    for step, (begin, end) in zip(steps, clocks, strict=True):
        assert step.begin_ns is not None
        assert begin <= step.begin_ns <= step.time_ns <= end
        outside.append((step.begin_ns - begin) + (end - step.time_ns))
    # Nothing of a step is outside: what is left of the clock is the call of the hooks, and once
    # what torch imports at the first step. That takes less than the step sleeps, on a busy machine
    # in one of six turns at least.
    assert min(outside) < 3_000_000
    for step in steps[::2]:
        assert step.begin_ns is not None
        assert step.time_ns - step.begin_ns >= 3_000_000


def test_steps_inside_of_each_other_and_steps_that_raise(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    outer, inner = Around(model.parameters(), 0.1), Slow(model.parameters(), 0.1)
    outer.inner = inner
    with agviz.trace(path=tmp_path / "t.agviz"):
        model(torch.ones(1, 3)).sum().backward()
        outer.step()
        inner.fails = True
        for _ in range(40):
            with pytest.raises(RuntimeError, match="a step that fails"):
                inner.step()
        around = clocked(outer.step)
        inner.fails = False
        after = clocked(inner.step)
    steps = steps_of(tmp_path / "t.agviz")
    assert [step.optimizer for step in steps] == ["Slow", "Around", "Around", "Slow"]
    begins = [step.begin_ns or 0 for step in steps]
    assert begins[1] < begins[0] < steps[0].time_ns <= steps[1].time_ns
    assert around[0] <= begins[2] < around[1] - 2_000_000
    assert after[0] <= begins[3] < after[1] - 3_000_000


def test_a_thread_that_only_steps_has_a_name(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        model(torch.ones(1, 3)).sum().backward()
        thread = threading.Thread(target=optimizer.step, name="updates")
        thread.start()
        thread.join()
        optimizer.step()
    with agviz.Trace.open(tmp_path / "t.agviz") as trace:
        names = {thread.id: thread.name for thread in trace.threads}
        assert [names[step.thread] for step in trace.optimizer_steps()] == ["updates", "MainThread"]


def test_a_step_that_had_begun_before_is_without_begin(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    outer = Around(model.parameters(), 0.1)

    class Starts:
        def step(self) -> None:
            recording.__enter__()

    recording = agviz.trace(path=tmp_path / "t.agviz")
    outer.inner = Starts()  # type: ignore[assignment]
    outer.step()
    recording.__exit__(None, None, None)
    assert [step.begin_ns for step in steps_of(tmp_path / "t.agviz")] == [None]


def test_no_hook_is_left_behind_and_nothing_is_changed(tmp_path: Path) -> None:
    def trained() -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
        return model.weight.detach().clone()

    hooks: list[dict[Any, Any]] = [
        torch_optimizers._global_optimizer_pre_hooks,
        torch_optimizers._global_optimizer_post_hooks,
    ]
    before = [dict(each) for each in hooks]
    alone = trained()
    with agviz.trace(path=tmp_path / "t.agviz"):
        recorded = trained()
    assert torch.equal(alone, recorded)
    assert [dict(each) for each in hooks] == before


def test_what_fails_here_does_not_reach_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agviz.record.recorder import Recorder

    def fails(*_: object, **__: object) -> None:
        raise ValueError

    monkeypatch.setattr(Recorder, "stepped", fails)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        optimizer.step()
    assert steps_of(tmp_path / "t.agviz") == []


@pytest.mark.parametrize("column", ["t", "begin_t", "thread", "optimizer"])
def test_a_damaged_step_is_refused(tmp_path: Path, column: str) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    with contextlib.closing(sqlite3.connect(tmp_path / "t.agviz")) as database, database:
        database.execute(f"UPDATE optimizer_step SET {column} = 'x'")  # noqa: S608
    with pytest.raises(TraceError):
        steps_of(tmp_path / "t.agviz")


def test_a_step_that_calls_that_of_its_base_class_is_one_step(tmp_path: Path) -> None:
    class Own(Slow):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    Slow([nn.Parameter(torch.ones(1))])  # from now on torch's hooks are called for its step, too
    optimizer = Own([nn.Parameter(torch.ones(1))])
    with agviz.trace(path=tmp_path / "t.agviz"):
        optimizer.step()
        for fails in (True, False):
            optimizer.fails = fails
            with contextlib.suppress(RuntimeError):
                optimizer.step()
        before, after = clocked(optimizer.step)
    steps = steps_of(tmp_path / "t.agviz")
    assert [each.number for each in steps] == [0, 1, 2]
    assert [each.optimizer for each in steps] == ["Own"] * 3
    last = steps[-1]
    assert last.begin_ns is not None
    assert before <= last.begin_ns <= before + 2_000_000 <= last.time_ns <= after
