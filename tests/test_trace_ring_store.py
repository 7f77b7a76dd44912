"""The flight recorder: little stays in memory, and all of it is in the file when it matters."""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING

import pytest

from agviz.record.recorder import Recorder
from agviz.record.ring_store import RingStore
from agviz.record.stores import EXCEPTION, NONFINITE, OCCASIONS, SIGNAL
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


class Flight:
    """A flight recorder on a simulated engine."""

    def __init__(
        self, path: Path, on: Collection[str], keep: int = 2, steps: range | None = None
    ) -> None:
        self.path = path
        registry = Registry()
        self.store = RingStore(on=on, keep=keep)
        self.recorder = Recorder(path, store=self.store, steps=steps)
        registry.add(self.recorder)
        self.simulator = Simulator(registry, Random(1), devices=1)
        self.graph = random_graph(self.simulator.rng, 30, 1)
        self.inner = random_graph(self.simulator.rng, 5)

    def backward(self, count: int = 1, *, nan: bool = False, fails: bool = False) -> None:
        for _ in range(count):
            self.simulator.backward(
                self.graph,
                nan_at=3 if nan else None,
                fail_at=5 if fails else None,
                reentrant=None if fails else self.inner,
            )

    def written(self) -> list[int]:
        """Closes it; the outermost graph tasks in the file, all of which have to be whole."""
        self.recorder.close()
        with Trace.open(self.path) as trace:
            tasks = trace.graph_tasks
            numbers = {task.id for task in tasks}
            assert trace.meta.partial
            assert trace.meta.end_ns is not None
            emitted = [e for e in self.simulator.emitted if e.graph_task in numbers | {-1}]
            assert trace.events(limit=10**6) == emitted
            assert GraphTaskStatus.CUT not in {task.status for task in tasks}
            for task in tasks:
                assert len(trace.nodes(task.id)) in {30, 5}
                assert trace.edges(task.id)
                assert trace.state_at(task.id, trace.event_count(task.id)).executed(task.id) > 0
            return [task.id for task in tasks if task.parent < 0]


@pytest.fixture(params=[(on,) for on in OCCASIONS])
def on(request: pytest.FixtureRequest) -> tuple[str]:
    name: tuple[str] = request.param
    return name


def test_nothing_is_written_where_nothing_happens(tmp_path: Path, on: tuple[str]) -> None:
    flight = Flight(tmp_path / "t.agviz", on)
    assert flight.path.exists(), "that it can be written was tried"
    flight.backward(5)
    assert not flight.store.has_written
    flight.recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_non_finite_gradients(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "t.agviz", {NONFINITE}, keep=3)
    flight.backward(4)  # 0, 2, 4, 6: each makes a reentrant call
    flight.backward(3, nan=True)  # 8, and two that don't count
    flight.backward(4)
    flight.backward(1, nan=True)  # 22
    flight.backward(2)
    assert flight.written() == [4, 6, 8, 18, 20, 22]


def test_an_exception(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "t.agviz", {EXCEPTION}, keep=2)
    flight.backward(3, nan=True)
    flight.backward(1, fails=True)
    flight.backward(3)
    assert flight.written() == [4, 6]


def test_occasions_not_asked_for_are_none(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "t.agviz", {SIGNAL})
    flight.backward(3, nan=True)
    flight.backward(1, fails=True)
    flight.recorder.close()
    assert not flight.path.exists()


def test_on_demand_from_another_thread(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "t.agviz", {SIGNAL}, keep=2)
    flight.backward(4)
    asked: list[int] = []
    thread = threading.Thread(target=lambda: asked.append(flight.store.write_down()))
    thread.start()
    thread.join()
    assert asked == [2]
    assert flight.recorder.flush()
    with Trace.open(flight.path) as trace:
        assert [task.id for task in trace.graph_tasks if task.parent < 0] == [4, 6]
    assert flight.store.write_down() == 0
    flight.backward(5)
    assert flight.store.write_down() == 2
    assert flight.written() == [4, 6, 14, 16]


def test_demands_at_any_moment_lose_nothing(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "t.agviz", {SIGNAL}, keep=1)
    ended, written = threading.Event(), 0

    def demand() -> None:
        nonlocal written
        while not ended.is_set():
            written += flight.store.write_down()

    thread = threading.Thread(target=demand)
    thread.start()
    while written < 20:
        flight.backward(5)
    ended.set()
    thread.join()
    assert len(flight.written()) == written


def test_steps_that_are_not_wanted_take_no_place(tmp_path: Path) -> None:
    flight = Flight(tmp_path / "t.agviz", {SIGNAL}, keep=3, steps=range(0, 100, 5))
    flight.backward(23)
    assert flight.store.write_down() == 3
    assert flight.written() == [20, 30, 40]


def test_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flight = Flight(tmp_path / "t.agviz", {SIGNAL}, keep=1_000)
    flight.backward(1)
    (one,) = flight.store._flights
    size = len(one.held)
    monkeypatch.setattr("agviz.record.ring_store._MOST_HELD", 5 * size)
    flight.backward(20)
    assert sum(len(f.held) for f in flight.store._flights) <= 6 * size
    assert len(flight.store._flight_of) <= 2 * 6
    monkeypatch.setattr("agviz.record.ring_store._MOST_HELD", size // 2)
    flight.backward(1)
    assert "is too large to be kept in memory" in caplog.text
    assert not flight.store._flights
    monkeypatch.undo()
    flight.backward(2)
    assert flight.store.write_down() == 2
    assert flight.written() == [44, 46]
