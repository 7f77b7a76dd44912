"""States of simulated backward passes, and everything that they say."""

from __future__ import annotations

import sqlite3
from random import Random
from typing import TYPE_CHECKING, Any

from tests.event_simulator import Simulator, random_graph

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.traces.engine_state import EngineState
    from agviz.traces.state import BackwardState
    from agviz_engine.instruments import Registry


def picture(state: BackwardState | EngineState) -> dict[str, Any]:
    """Everything that a state says; queues that hold nothing are left out."""
    return {
        "seq": state.seq,
        "live bytes": state.live_bytes,
        "knows all": state.knows_all,
        "running": state.running(),
        "queues": [(q.queue, q.thread, list(q.tasks)) for q in state.queues() if len(q.tasks)],
        **{f"graph task {number}": _of_task(state, number) for number in state.graph_tasks},
    }


def _of_task(state: BackwardState | EngineState, number: int) -> dict[str, Any]:
    statuses = state.statuses(number)
    nodes = range(len(statuses))
    return {
        "depth": state.depth(number),
        "nonfinite": state.nonfinite(number),
        "statuses": statuses,
        "each status": [state.status(number, node) for node in nodes],
        "executed": state.executed(number),
        "buffers": {node: slots for node, slots in state.buffers(number).items() if slots},
        "remaining": [state.remaining(number, node) for node in nodes],
        "sequence numbers": [state.sequence_nr(number, node) for node in nodes],
    }


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


def cut_off(path: Path, count: int) -> None:
    """Leave the first ``count`` events of a trace, as if the process had been killed then."""
    database = sqlite3.connect(path)
    database.execute("DELETE FROM event WHERE seq >= ?", (count,))
    database.execute("DELETE FROM graph_task WHERE begin_seq >= ?", (count,))
    database.execute(
        "UPDATE graph_task SET end_seq = NULL, end_t = NULL, error = 0, message = 0,"
        " executed = NULL WHERE end_seq >= ?",
        (count,),
    )
    database.execute("UPDATE meta SET value = 'null' WHERE key = 'end_ns'")
    for table in ("anchor", "node_block", "timeline"):
        database.execute(f"DELETE FROM {table}")  # noqa: S608
    database.commit()
    database.close()
