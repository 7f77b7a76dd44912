"""How gauges go over time: steps, what is kept between readings, and charts of one line."""

from __future__ import annotations

import io
import itertools
import re
import tempfile
import threading
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch.utils.checkpoint import checkpoint

import agviz_engine
from agviz.analysis.counters import (
    LIVE_BYTES,
    CounterReadings,
    QueueNames,
    Reading,
    counter_series,
)
from agviz.analysis.passes import Passes
from agviz.cli.chart import sparkline
from agviz.errors import TraceError
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz_engine import events
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph
from tests.state_support import cut_off


def replayed(trace: Trace, graph_task: int) -> list[Reading]:
    """Every change of a gauge, from the state after each event."""
    passes = Passes(trace, graph_task)
    state, task = trace.replay(), trace.graph_task(graph_task)
    names, known, live = QueueNames(trace), {t.id for t in trace.graph_tasks}, 0
    read = list[Reading]()
    for event in trace.events(limit=trace.event_count()):
        if event.graph_task not in known:
            continue
        state.apply(event)
        if not task.begin_seq <= event.seq <= (task.end_seq or event.seq):
            continue
        if isinstance(event, events.QueuePush | events.QueuePop):
            name = names.of(event.graph_task, event.queue)
            read.append(Reading(event.time_ns, name, event.size))
        if state.live_bytes != live:
            live = state.live_bytes
            read.append(Reading(event.time_ns, LIVE_BYTES, live))
    gauges = CounterReadings(passes)
    assert [reading for event in passes.events() for reading in gauges.apply(event)] == read
    return read


def largest(read: list[Reading], trace: Trace, graph_task: int, steps: int) -> dict[str, list[int]]:
    """The largest value by gauge and step, of all readings of a graph task."""
    task = trace.graph_task(graph_task)
    end_ns = Passes(trace, graph_task).last_ns() if task.end_ns is None else task.end_ns
    length = max(1, end_ns - task.begin_ns)
    told: dict[str, dict[int, list[int]]] = {}
    for reading in read:
        step = (reading.time_ns - task.begin_ns) * steps // length
        place = min(max(step, 0), steps - 1)
        told.setdefault(reading.gauge, {}).setdefault(place, []).append(reading.value)
    found = {}
    for gauge, readings in told.items():
        kept, values = 0, []
        for step in range(steps):
            within = [kept, *readings.get(step, [])]
            values.append(max(within))
            kept = within[-1]
        if any(values):
            found[gauge] = values
    return found


def agrees(trace: Trace) -> int:
    """Number of values that were compared with the replay, which has to give the same."""
    count = 0
    for task in trace.graph_tasks:
        read = replayed(trace, task.id)
        for steps in (1, 3, 40, 777):
            found = {
                course.gauge: course.values for course in counter_series(trace, task.id, steps)
            }
            assert found == largest(read, trace, task.id, steps)
            count += sum(map(len, found.values()))
    return count


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(2, 40), st.integers(0, 3), st.data())
@settings(max_examples=settings().max_examples // 10)
def test_the_replay_says_the_same(seed: int, size: int, devices: int, data: st.DataObject) -> None:
    fails = data.draw(st.none() | st.integers(0, size - 1))
    nodes = data.draw(st.sampled_from([None, re.compile("Simulated[36]")]))
    registry = Registry()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.agviz")
        with Recorder(path, nodes=nodes) as recorder:
            registry.add(recorder)
            simulator = Simulator(registry, Random(seed), devices=devices)
            inner = random_graph(simulator.rng, size)
            outer = random_graph(simulator.rng, size, devices)
            simulator.backward(outer, reentrant=inner)
            simulator.backward(outer, reentrant=inner, fail_at=fails)
            simulator.backward(inner)
            assert recorder.flush()
            with Trace.open(path) as growing:
                agrees(growing)
        with Trace.open(path) as trace:
            agrees(trace)
            # Cut off anywhere, as by kill -9: what is under way has no end.
            cut = data.draw(st.integers(0, trace.event_count()))
        cut_off(path, cut)
        with Trace.open(path) as trace:
            agrees(trace)


def test_the_replay_says_the_same_of_threads_of_the_engine(tmp_path: Path) -> None:
    def run() -> None:
        weight = torch.randn(16, 16, requires_grad=True)
        for _ in range(6):
            x = checkpoint(torch.tanh, weight @ weight, use_reentrant=True)
            (x.relu() @ weight + weight).sum().backward()

    with Recorder(tmp_path / "t.agviz") as recorder, agviz_engine.installed(recorder):
        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert len(trace.graph_tasks) == 3 * 6 * 2
        assert agrees(trace) > 10_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    registry = Registry()
    with Recorder(tmp_path / "t.agviz") as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(0), devices=2)
        for _ in range(3):
            inner = random_graph(simulator.rng, 6, 2)
            simulator.backward(random_graph(simulator.rng, 40, 2), reentrant=inner)
    return tmp_path / "t.agviz"


@pytest.mark.parametrize("steps", [1, 7, 40, 5_000])
def test_steps_hold_the_largest_value_of_their_time(path: Path, steps: int) -> None:
    with Trace.open(path) as trace:
        task = trace.graph_tasks[2]
        assert task.end_ns is not None
        found = {course.gauge: course for course in counter_series(trace, task.id, steps)}
        told = trace.events(limit=10**9)
    assert next(iter(found)) == LIVE_BYTES
    for device in (0, 1):
        readings = [
            (event.time_ns, event.size)
            for event in told
            if isinstance(event, events.QueuePush | events.QueuePop)
            and event.queue == device
            and task.begin_ns <= event.time_ns <= task.end_ns
        ]
        course = found[f"ReadyQueue device {device}"]
        assert course.unit == "tasks"
        assert course.peak == max(course.values) == max(value for _, value in readings)
        width = (task.end_ns - task.begin_ns) / steps
        for step, value in enumerate(course.values):
            begin = task.begin_ns + step * width
            within = [v for t, v in readings if begin <= t < begin + width]
            before = [0, *(v for t, v in readings if t < begin)]
            assert value == max([before[-1], *within])


def test_gauges_that_stay_at_zero_are_left_out(tmp_path: Path) -> None:
    registry = Registry()
    with Recorder(tmp_path / "t.agviz") as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(0))
        simulator.backward(random_graph(simulator.rng, 5))
    with Trace.open(tmp_path / "t.agviz") as trace:
        names = [course.gauge for course in counter_series(trace, 0, 10)]
        with pytest.raises(TraceError, match="no graph task 1"):
            counter_series(trace, 1, 10)
    assert names == [LIVE_BYTES, "ReadyQueue CPU, MainThread"]


def test_a_sparkline_tells_nothing_from_little() -> None:
    unicode = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    plain = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert sparkline([0, 1, 50, 99, 100], unicode) == "▁▂▅██"
    assert sparkline([0, 1, 50, 99, 100], plain) == "_.=##"
    assert sparkline([0, 0], unicode) == "▁▁"
    for value, top in itertools.product(range(40), range(1, 40)):
        assert (sparkline([min(value, top), top], unicode)[0] == "▁") == (value == 0)
