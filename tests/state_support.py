"""States of simulated backward passes, and everything that they say."""

from __future__ import annotations

import zlib
from random import Random
from typing import TYPE_CHECKING, Any

from agviz.traces.state import BackwardState, GraphShape
from agviz_engine.instruments import Instrument, Live, Registry
from tests.event_simulator import Simulator, random_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz_engine import events


class Shapes(Instrument):
    """Keeps the graphs that pass by, as a replay needs them."""

    def __init__(self) -> None:
        self.found: dict[int, GraphShape] = {}

    def dependencies_computed(self, event: events.DependenciesComputed, live: Live) -> None:
        assert live.graph_task is not None
        nodes: list[Any] = list(live.graph_task.nodes)
        dependencies = [0] * len(nodes)
        for node in nodes:
            for edge in filter(None, node.next_edges):
                dependencies[edge[0].index] += 1
        numbers = [node.sequence_nr for node in nodes]
        queues = bytes(node.device + 1 for node in nodes)
        self.found[event.graph_task] = GraphShape(numbers, dependencies, queues=queues)


def picture(state: BackwardState) -> Any:
    """Everything that a state says."""
    return (
        state.seq,
        state.time_ns,
        state.live_bytes,
        state.knows_all,
        state.running(),
        state.queues(),
        [
            (
                number,
                state.depth(number),
                state.nonfinite(number),
                state.queue_length(number, -1),
                statuses := state.statuses(number),
                state.executed(number),
                state.buffers(number),
                [state.remaining(number, node) for node in range(len(statuses))],
                [state.is_nonfinite(number, node) for node in range(len(statuses))],
                [state.sequence_nr(number, node) for node in range(len(statuses))],
            )
            for number in state.graph_tasks
        ],
    )


def simulate(
    seed: int, size: int, devices: int, registry: Registry, *, in_order: bool = False
) -> Simulator:
    """Backward passes, one after the other, with one reentrant call in each but the second.

    ``in_order``: all nodes but leaves have sequence numbers of their own.
    """
    simulator = Simulator(registry, Random(seed), devices=devices)
    inner = random_graph(simulator.rng, size)
    outer = random_graph(simulator.rng, size, devices)
    if in_order:
        for graph in (inner, outer):
            numbers = iter(simulator.rng.sample(range(size), size))
            for node in graph:
                if not node.is_accumulate_grad:
                    node.sequence_nr = next(numbers)
                    if simulator.rng.random() < 0.5:
                        node.device = -1
    simulator.backward(outer, reentrant=inner, nan_at=size // 2)
    simulator.backward(inner, fail_at=size // 2)
    simulator.backward(outer, reentrant=inner)
    return simulator


def try_to_use(data: bytes, shape: Callable[[int], GraphShape]) -> bool:
    """Whether the bytes were taken; then everything can be asked of the state."""
    try:
        state = BackwardState(shape).unpack(data)
    except ValueError:
        return False
    picture(state)
    state.pack()
    return True


def flipped(packed: bytes, rng: Random) -> bytearray:
    """The bytes of a packed state, with some bits turned."""
    data = bytearray(zlib.decompress(packed))
    for _ in range(rng.choice([1, 3, 30])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data
