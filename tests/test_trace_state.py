"""Replayed state against the engine's own: queues, dependencies and buffers at every moment."""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agviz.traces.rows import QueuedTask
from agviz.traces.state import BackwardState, GraphShape, ImpossibleEventError
from agviz_engine import events
from agviz_engine.instruments import Instrument, Live, Registry
from tests.event_simulator import SimulatedNode, Simulator, random_graph

if TYPE_CHECKING:
    from collections.abc import Callable


def shape_of(graphs: dict[int, list[SimulatedNode]]) -> Callable[[int], GraphShape]:
    def shape(number: int) -> GraphShape:
        nodes = graphs[number]
        dependencies = [0] * len(nodes)
        for node in nodes:
            for edge in filter(None, node.next_edges):
                dependencies[edge[0].index] += 1
        return GraphShape([node.sequence_nr for node in nodes], dependencies)

    return shape


class ShapeKeeper(Instrument):
    """Keeps the graphs that pass by."""

    def __init__(self) -> None:
        self.graphs: dict[int, list[Any]] = {}

    def dependencies_computed(self, event: events.DependenciesComputed, live: Live) -> None:
        assert live.graph_task is not None
        self.graphs[event.graph_task] = list(live.graph_task.nodes)


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(0, 3), st.booleans())
@settings(max_examples=60)
def test_the_queue_replayed_gives_what_the_queue_gave(
    seed: int, size: int, devices: int, reentrant: bool
) -> None:
    registry, keeper = Registry(), ShapeKeeper()
    registry.add(keeper)
    simulator = Simulator(registry, Random(seed), devices=devices)
    inner = random_graph(simulator.rng, size) if reentrant else None
    for _ in range(2):
        simulator.backward(random_graph(simulator.rng, size, devices), reentrant=inner)
    state = BackwardState(shape_of(keeper.graphs))
    pops = 0
    held: dict[tuple[int, int, int], int] = {}
    for event in simulator.emitted:
        if isinstance(event, events.QueuePop):
            (queue,) = [q for q in state.queues() if q.queue == event.queue]
            assert queue.tasks[0] == QueuedTask(event.graph_task, event.node)
            assert len(queue.tasks) == event.size + 1
            pops += 1
        state.apply(event)
        if isinstance(event, events.GradientAccumulated):
            held[event.graph_task, event.node, event.slot] = event.nbytes
        elif isinstance(event, events.NodeFinished):
            held = {key: n for key, n in held.items() if key[:2] != (event.graph_task, event.node)}
        assert state.live_bytes == sum(held.values())
    assert pops >= 2 * size
    assert not any(queue.tasks for queue in state.queues())
    assert state.live_bytes == 0
    assert not state.running()


def chain(length: int) -> list[SimulatedNode]:
    nodes = [SimulatedNode(i, "Simulated", length - i, -1, num_inputs=1) for i in range(length)]
    for node, following in itertools.pairwise(nodes):
        node.next_edges = ((following, 0),)
    return nodes


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        (events.QueuePop, {"node": 2}, "not in this queue"),
        (events.QueuePush, {"node": 2}, "waits for 1 more"),
        (events.NodeStarted, {"node": 2}, "waiting"),
        (events.NodeFinished, {"node": 2}, "waiting"),
        (events.DependencyDecremented, {"remaining": 5}, "waited for 1"),
        (events.GradientAccumulated, {"node": 99}, "no such"),
        (events.NodeStarted, {"node": -1}, "no such"),
        (events.QueuePush, {"graph_task": 99}, "no such"),
    ],
)
def test_what_cannot_happen_is_refused(kind: type[Any], change: dict[str, int], why: str) -> None:
    keeper, registry = ShapeKeeper(), Registry()
    registry.add(keeper)
    simulator = Simulator(registry, Random(0))
    simulator.backward(chain(4))
    strict = BackwardState(shape_of(keeper.graphs))
    tolerant = BackwardState(shape_of(keeper.graphs), tolerant=True)
    for event in simulator.emitted:
        if isinstance(event, kind):
            wrong = event._replace(**change)
            with pytest.raises(ImpossibleEventError, match=why) as caught:
                strict.apply(wrong)
            assert caught.value.event == wrong
            tolerant.apply(wrong)
            return
        strict.apply(event)
        tolerant.apply(event)
    pytest.fail("no such event came by")


def test_a_gradient_that_comes_after_the_end_is_not_kept() -> None:
    """As where a thread was still busy when a graph task failed: nobody would take it out."""
    keeper, registry = ShapeKeeper(), Registry()
    registry.add(keeper)
    simulator = Simulator(registry, Random(0))
    number = simulator.backward(chain(4), fail_at=1)
    state = BackwardState(shape_of(keeper.graphs))
    for event in simulator.emitted:
        state.apply(event)
    late = simulator.emitted[-1].seq + 1, simulator.emitted[-1].time_ns, 0, number
    state.apply(events.GradientAccumulated(*late, 3, 2, 0, False, 8))
    assert state.live_bytes == 0
    assert not any(state.buffers(number).values())


def test_the_story_comes_with_the_objection() -> None:
    keeper, registry = ShapeKeeper(), Registry()
    registry.add(keeper)
    simulator = Simulator(registry, Random(0))
    simulator.backward(chain(4))
    state = BackwardState(shape_of(keeper.graphs))
    finish = next(e for e in simulator.emitted if isinstance(e, events.NodeFinished))
    for event in simulator.emitted[: simulator.emitted.index(finish) + 1]:
        state.apply(event)
    with pytest.raises(ImpossibleEventError) as caught:
        state.apply(finish)
    assert finish in caught.value.story
    assert all(getattr(event, "node", 0) == 0 for event in caught.value.story)
