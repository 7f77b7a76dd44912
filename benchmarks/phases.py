"""Where our engine's time goes: a sampling profiler, so that looking does not change the shares.

A timer of CPU time interrupts the backward; the innermost frame that belongs to the engine says
what it was doing. Torch's own work on a node counts for the line that calls it.
"""

from __future__ import annotations

import gc
import linecache
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import agviz_engine

if TYPE_CHECKING:
    from types import FrameType

    from benchmarks.graphs import Graph

INTERVAL = 0.001
_ENGINE = str(Path(agviz_engine.__file__).parent)
_NODE_ITSELF = "(*inputs)"

_BY_FUNCTION = {
    "walk": "walk",
    "compute_dependencies": "walk",
    "_push": "queue",
    "_pop": "queue",
    "increment_outstanding_tasks": "queue",
    "decrement_outstanding_tasks": "queue",
    "call_function": "hook check, call",
    "release_variables": "release",
    "release": "take down",
    "execute": "take down",
}
_BY_FILE = {
    "node.py": "walk",
    "validate_outputs.py": "validate",
    "torch_layout.py": "validate",
    "ready_queue.py": "queue",
    "input_buffer.py": "buffers",
    "accumulate_grad.py": "leaves, custom Functions",
    "native_run.py": "leaves, custom Functions",
    "function_hook.py": "hooks",
    "emit.py": "events",
    "engine.py": "loop, distribution",
}


class Phase(NamedTuple):
    """A part of the engine's work."""

    name: str
    share: float


class Line(NamedTuple):
    """A line of the engine on which time is spent."""

    where: str
    text: str
    share: float


class Breakdown(NamedTuple):
    """Where a backward's time went, largest first."""

    samples: int
    phases: list[Phase]
    lines: list[Line]
    garbage: float
    """Share of the garbage collector, which is also within the phases it interrupted."""


def measure(graph: Graph, repeats: int) -> Breakdown:
    """Sample ``repeats`` backward passes on our engine."""
    at: Counter[tuple[str, str, int]] = Counter()
    garbage = _Garbage()
    busy = 0

    def look(_signal: int, frame: FrameType | None) -> None:
        while frame is not None and not frame.f_code.co_filename.startswith(_ENGINE):
            frame = frame.f_back
        if frame is not None:
            at[frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno or 0] += 1

    before = signal.signal(signal.SIGPROF, look)
    try:
        with agviz_engine.installed():
            for _ in range(repeats):
                for leaf in graph.leaves:
                    leaf.grad = None
                loss = graph.forward()
                gc.collect()
                gc.callbacks.append(garbage)
                signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
                begin = time.thread_time_ns()
                loss.backward()
                busy += time.thread_time_ns() - begin
                signal.setitimer(signal.ITIMER_PROF, 0)
                gc.callbacks.remove(garbage)
    finally:
        signal.signal(signal.SIGPROF, before)
    return _breakdown(at, garbage.ns / busy)


class _Garbage:
    """Observes the garbage collector."""

    def __init__(self) -> None:
        self.ns = 0
        self._began = 0

    def __call__(self, moment: str, _facts: object) -> None:
        if moment == "start":
            self._began = time.thread_time_ns()
        else:
            self.ns += time.thread_time_ns() - self._began


def _breakdown(at: Counter[tuple[str, str, int]], garbage: float) -> Breakdown:
    total = at.total()
    phases: Counter[str] = Counter()
    lines = []
    for (path, function, number), count in at.most_common():
        text = linecache.getline(path, number).strip()
        phases[_phase(Path(path).name, function, text)] += count
        lines.append(Line(f"{Path(path).name}:{number} {function}", text, count / total))
    return Breakdown(
        samples=total,
        phases=[Phase(name, count / total) for name, count in phases.most_common()],
        lines=lines,
        garbage=garbage,
    )


def _phase(file: str, function: str, text: str) -> str:
    if function == "call_function" and _NODE_ITSELF in text:
        return "the node itself"
    return _BY_FUNCTION.get(function) or _BY_FILE.get(file, "other")
