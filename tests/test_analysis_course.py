"""How gauges go over time: steps, what is kept between readings, and charts of one line."""

from __future__ import annotations

import io
import itertools
from random import Random
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from agviz.analysis.course import courses
from agviz.analysis.gauges import LIVE_BYTES
from agviz.cli.chart import size, sparkline
from agviz.errors import TraceError
from agviz.traces.reader import Trace
from agviz.traces.recorder import Recorder
from agviz_engine import events
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph

if TYPE_CHECKING:
    from pathlib import Path


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
        found = {course.gauge: course for course in courses(trace, task.id, steps)}
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
        names = [course.gauge for course in courses(trace, 0, 10)]
        with pytest.raises(TraceError, match="no graph task 1"):
            courses(trace, 1, 10)
    assert names == [LIVE_BYTES, "ReadyQueue CPU, MainThread"]


def test_a_sparkline_tells_nothing_from_little() -> None:
    unicode = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    plain = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert sparkline([0, 1, 50, 99, 100], unicode) == "▁▂▅██"
    assert sparkline([0, 1, 50, 99, 100], plain) == "_.=##"
    assert sparkline([0, 0], unicode) == "▁▁"
    for value, top in itertools.product(range(40), range(1, 40)):
        assert (sparkline([min(value, top), top], unicode)[0] == "▁") == (value == 0)


def test_sizes() -> None:
    assert size(0) == "0 B"
    assert size(1023) == "1023 B"
    assert size(1024) == "1.00 KiB"
    assert size(1_625_292) == "1.55 MiB"
    assert size(150 * 2**30) == "150 GiB"
