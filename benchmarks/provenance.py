"""What it costs the forward that every node's origin is captured, beside anomaly mode.

A plain forward, one with provenance and one with anomaly mode are taken one right after the other,
in turns; CPU time of the calling thread. What resolving costs later is measured apart.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from agviz.traces.provenance import Provenance
from benchmarks.measure import Ratio

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor

    from benchmarks.graphs import Graph


class Cost(NamedTuple):
    """Times in ns."""

    nodes: int
    plain_ns: float
    """Median."""
    captured: Ratio
    """Forward with provenance, as a multiple of the plain one."""
    anomaly: Ratio
    """The same with anomaly mode."""
    captured_per_node_ns: float
    """Extra time, median."""
    anomaly_per_node_ns: float
    share: float
    """Extra time of provenance as a part of that of anomaly mode."""
    reading_per_node_ns: float
    """Reading stacks and saved tensors from a node, in backward."""
    resolving_per_node_ns: float
    """Making lines of a stack, in the recorder's thread."""


def measure(graph: Graph, rounds: int) -> Cost:
    """The forward of ``graph``, ``rounds`` times each way."""
    ways: tuple[Callable[[], AbstractContextManager[Any]], ...] = (
        nullcontext,
        Provenance,
        lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    )
    orders = list(itertools.permutations(range(len(ways))))
    taken: list[list[int]] = []
    for number in range(1 + rounds):
        times = [0, 0, 0]
        for way in orders[number % len(orders)]:  # who runs after whom changes as well
            times[way] = _timed(graph, ways[way])
        taken.append(times)
    del taken[0]  # warms the caches
    extra = [statistics.median(times[way] - times[0] for times in taken) for way in range(3)]
    origins = Provenance()
    with origins:
        loss = graph.forward()
    nodes = _nodes(loss)
    begin = time.thread_time_ns()
    captured = [origins.captured(node) for node in nodes]
    for node in nodes:
        list(origins.saved(node))
    middle = time.thread_time_ns()
    origins.resolve(captured)
    end = time.thread_time_ns()
    return Cost(
        nodes=len(nodes),
        plain_ns=statistics.median(times[0] for times in taken),
        captured=Ratio.of([times[1] / times[0] for times in taken]),
        anomaly=Ratio.of([times[2] / times[0] for times in taken]),
        captured_per_node_ns=extra[1] / len(nodes),
        anomaly_per_node_ns=extra[2] / len(nodes),
        share=extra[1] / extra[2],
        reading_per_node_ns=(middle - begin) / len(nodes),
        resolving_per_node_ns=(end - middle) / len(nodes),
    )


def _timed(graph: Graph, way: Callable[[], AbstractContextManager[Any]]) -> int:
    gc.collect()
    with way():
        begin = time.thread_time_ns()
        loss = graph.forward()
        taken = time.thread_time_ns() - begin
    del loss
    return taken


def _nodes(loss: Tensor) -> list[Any]:
    found: dict[Any, None] = {loss.grad_fn: None}
    stack = list(found)
    while stack:
        for node, _ in stack.pop().next_functions:
            if node is not None and node not in found:
                found[node] = None
                stack.append(node)
    return list(found)
