"""What it costs the forward that every node's origin is captured, beside anomaly mode.

A plain forward, one in which torch calls for each node and nobody captures anything, one with
provenance and one with anomaly mode are taken one right after the other, in turns; CPU time of the
calling thread. A graph that has parts is taken part by part, so that what is compared lies less far
apart. What resolving costs later is measured apart.

Memory once taken stays with the process: to get pages from the system and to clear them costs a
large forward more than what is measured here, and not twice the same.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import random
import statistics
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import traceback

from agviz.record.provenance import Provenance
from benchmarks.measure import Ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from benchmarks.graphs import Graph

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_RESAMPLED = 1000


class Cost(NamedTuple):
    """Times in ns; extra times are medians, added up over the parts of the graph."""

    nodes: int
    plain_ns: float
    """Median."""
    captured: Ratio
    """Forward with provenance, as a multiple of the plain one."""
    anomaly: Ratio
    """The same with anomaly mode."""
    told_per_node_ns: float
    """Extra time where torch calls for each node, for nothing: no provenance costs less."""
    captured_per_node_ns: float
    """Extra time with provenance, these calls included."""
    anomaly_per_node_ns: float
    share: Ratio
    """Extra time of provenance as a part of that of anomaly mode."""
    reading_per_node_ns: float
    """Reading stacks and saved tensors from a node, in backward."""
    resolving_per_node_ns: float
    """Making lines of a stack, in the recorder's thread."""


def measure(graph: Graph, rounds: int) -> Cost:
    """The forward of ``graph``, ``rounds`` times each way."""
    _keep_memory()
    parts = graph.parts or [graph.forward]
    taken = [_round(parts, number) for number in range(1 + rounds)][1:]  # the first warms up
    origins = Provenance()
    with origins:
        made = [part() for part in parts]
    nodes = _nodes(made)
    begin = time.thread_time_ns()
    captured = [origins.captured(node) for node in nodes]
    for node in nodes:
        list(origins.saved(node))
    middle = time.thread_time_ns()
    origins.resolve(captured)
    end = time.thread_time_ns()
    samples = list(itertools.chain.from_iterable(taken))
    _, calls, with_origins, with_anomaly = _extra(taken)
    return Cost(
        nodes=len(nodes),
        plain_ns=sum(statistics.median(each[0] for each in part) for part in _by_part(taken)),
        captured=Ratio.of([times[2] / times[0] for times in samples]),
        anomaly=Ratio.of([times[3] / times[0] for times in samples]),
        told_per_node_ns=calls / len(nodes),
        captured_per_node_ns=with_origins / len(nodes),
        anomaly_per_node_ns=with_anomaly / len(nodes),
        share=_share(taken),
        reading_per_node_ns=(middle - begin) / len(nodes),
        resolving_per_node_ns=(end - middle) / len(nodes),
    )


def _round(parts: Sequence[Callable[[], Tensor]], number: int) -> list[list[int]]:
    """For each part the times of all ways; who runs after whom changes as well."""
    orders = itertools.cycle(itertools.permutations(range(len(_WAYS))))
    found = []
    for part, order in zip(parts, itertools.islice(orders, number, None), strict=False):
        times = [0] * len(_WAYS)
        for way in order:
            times[way] = _timed(part, _WAYS[way])
        found.append(times)
    return found


def _extra(taken: Sequence[list[list[int]]]) -> list[float]:
    """For each way, how much longer all parts took than the plain ones."""
    return [
        sum(statistics.median(each[way] - each[0] for each in part) for part in _by_part(taken))
        for way in range(len(_WAYS))
    ]


def _by_part(taken: Sequence[list[list[int]]]) -> Iterator[tuple[list[int], ...]]:
    return zip(*taken, strict=True)


def _share(taken: Sequence[list[list[int]]]) -> Ratio:
    """Provenance beside anomaly mode, and the interval found by resampling the rounds."""
    chance = random.Random(0)
    found = []
    for sample in [taken, *(chance.choices(taken, k=len(taken)) for _ in range(_RESAMPLED))]:
        *_, captured, anomaly = _extra(sample)
        found.append(captured / anomaly)
    ordered = sorted(found[1:])
    return Ratio(found[0], ordered[_RESAMPLED * 25 // 1000], ordered[_RESAMPLED * 975 // 1000])


@contextmanager
def _called_for_nothing() -> Iterator[None]:
    own = traceback.format_stack
    traceback.format_stack = list
    try:
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            yield
    finally:
        traceback.format_stack = own


_WAYS: tuple[Callable[[], AbstractContextManager[Any]], ...] = (
    nullcontext,
    _called_for_nothing,
    Provenance,
    lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
)


def _timed(forward: Callable[[], Tensor], way: Callable[[], AbstractContextManager[Any]]) -> int:
    gc.collect()
    with way():
        begin = time.thread_time_ns()
        made = forward()
        taken = time.thread_time_ns() - begin
    del made
    return taken


def _keep_memory() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)


def _nodes(made: Sequence[Tensor]) -> list[Any]:
    found: dict[Any, None] = {each.grad_fn: None for each in made}
    stack = list(found)
    while stack:
        for node, _ in stack.pop().next_functions:
            if node is not None and node not in found:
                found[node] = None
                stack.append(node)
    return list(found)
