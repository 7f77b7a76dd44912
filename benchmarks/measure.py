"""Measuring side by side on a machine that others use as well.

A sample of the native engine and one of a contender are taken one right after the other, in turns
first and second; what is kept is their ratio, and what is reported is the median of many. Each
is the second step of its kind: what a tool does once a run is no part of what a step costs. Both
find the garbage collector enabled, as in a training script, and just run before the forward.
Between forward and backward nothing happens, as in a training script: to collect garbage there
drives the interpreter and what the forward saved out of the processor's caches.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from benchmarks.contenders import NATIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.contenders import Contender
    from benchmarks.graphs import Graph


class Times(NamedTuple):
    """One stretch of work, in ns."""

    wall: int
    thread: int
    """CPU time of the calling thread."""
    process: int
    """CPU time of all threads."""

    @classmethod
    def now(cls) -> Self:
        """The clocks."""
        return cls(time.perf_counter_ns(), time.thread_time_ns(), time.process_time_ns())

    def until(self, end: Times) -> Times:
        """From these clock readings to the later ones ``end``."""
        return Times(*(b - a for a, b in zip(self, end, strict=True)))

    def plus(self, other: Times) -> Times:
        """Both stretches together."""
        return Times(*(a + b for a, b in zip(self, other, strict=True)))


class Sample(NamedTuple):
    """One training step."""

    forward: Times
    backward: Times


class Ratio(NamedTuple):
    """The median of ratios, with the interval that holds the true median in 95 of 100 cases."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Self:
        """From one ratio per round."""
        ordered = sorted(ratios)
        half = 0.98 * math.sqrt(len(ordered))
        low = max(0, math.floor(len(ordered) / 2 - half))
        high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + half) - 1)
        return cls(statistics.median(ordered), ordered[low], ordered[high])


class Measured(NamedTuple):
    """What a contender costs on a graph, as a multiple of what the native engine costs."""

    rounds: int
    thread: Ratio
    """Backward, CPU time of the calling thread."""
    process: Ratio
    """Backward, CPU time of all threads."""
    wall: Ratio
    """Backward, time that passed."""
    step: Ratio
    """Forward and backward, CPU time of the calling thread."""
    native_ns: float
    """CPU time of the calling thread in a native backward, median."""
    extra_ns: float
    """How much more the contender took, median."""


def sample(graph: Graph, contender: Contender) -> Sample:
    """Run two training steps and look at the clocks of the second.

    What a tool does once, such as to measure all parameters, is done in the first.
    """
    with contender.around():
        for _ in range(2):
            for leaf in graph.leaves:
                leaf.grad = None
            gc.collect()
            begin = Times.now()
            loss = graph.forward()
            contender.prepare(loss)
            forward = begin.until(Times.now())
            begin = Times.now()
            loss.backward()
            backward = begin.until(Times.now())
            del loss
    return Sample(forward, backward)


def pairs(
    graph: Graph, contenders: Sequence[Contender], rounds: int
) -> dict[str, list[tuple[Sample, Sample]]]:
    """Samples of native and of each contender; the first round warms up where there are several."""
    taken: dict[str, list[tuple[Sample, Sample]]] = {c.title: [] for c in contenders}
    for number in range(0 if rounds > 1 else 1, rounds + 1):
        for contender in contenders:
            if number % 2:
                native, other = sample(graph, NATIVE), sample(graph, contender)
            else:
                other, native = sample(graph, contender), sample(graph, NATIVE)
            if number:
                taken[contender.title].append((native, other))
    return taken


def summarise(taken: Sequence[tuple[Sample, Sample]]) -> Measured:
    """The medians over all rounds."""
    steps = [(a.forward.plus(a.backward), b.forward.plus(b.backward)) for a, b in taken]
    backwards = [(a.backward, b.backward) for a, b in taken]
    return Measured(
        rounds=len(taken),
        thread=Ratio.of([b.thread / a.thread for a, b in backwards]),
        process=Ratio.of([b.process / a.process for a, b in backwards]),
        wall=Ratio.of([b.wall / a.wall for a, b in backwards]),
        step=Ratio.of([b.thread / a.thread for a, b in steps]),
        native_ns=statistics.median(a.thread for a, _ in backwards),
        extra_ns=statistics.median(b.thread - a.thread for a, b in backwards),
    )
