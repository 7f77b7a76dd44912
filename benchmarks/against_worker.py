"""One of the two trees that ``python -m benchmarks.against`` compares, in a process of its own.

``python against_worker.py TREE`` takes agviz from TREE and what is measured from this file's own
tree. Each line on stdin is a call, ``["function", argument, ...]``; each line on stdout an answer
as JSON, null where this tree can't do it. A tree may be older or newer: only the public interface
is used, and what has no public one is looked for under all names that it has had.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PLACES = 200
_DEBUGGER = ("agviz.debugger.debugger", "agviz.debugger.stopping", "agviz.debugger")
"""Where the class ``Debugger`` may be."""


def sample(graph: str, how: str, before: int, steps: int) -> list[float] | None:
    """CPU and wall time in ns of the forwards, then of the backwards, of some steps.

    Args:
        graph: its name in :mod:`benchmarks.graphs` or :mod:`benchmarks.small_models`.
        how: a name of :func:`_around`.
        before: steps that warm up, in the same recording.
        steps: steps that are measured.
    """
    losses, leaves = _graph(graph)
    total = [0.0] * 4
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_around(how))
        except _Unknown:
            return None
        for number in range(before + steps):
            if number == before:
                gc.collect()
            found = _step(losses, leaves)
            if number >= before:
                total = [a + b for a, b in zip(total, found, strict=True)]
    return total


def reading(sequences: int) -> dict[str, float]:
    """Of one recorded pass: bytes, opening, states, closing."""
    import torch

    import agviz

    torch.manual_seed(0)
    cell = torch.nn.LSTMCell(4, 4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.agviz")
        recorded = agviz.trace(path=path, provenance=False)
        with recorded:
            torch.stack([_sequence(cell) for _ in range(sequences)]).sum().backward()
            begin = time.perf_counter(), time.process_time()
        end = time.perf_counter(), time.process_time()
        with agviz.Trace.open(path) as trace:
            events = trace.event_count()
        return {
            "events": events,
            "bytes per event": path.stat().st_size / events,
            "closing, wall, µs per event": 1e6 * (end[0] - begin[0]) / events,
            "closing, CPU, µs per event": 1e6 * (end[1] - begin[1]) / events,
            **_read(path),
        }


def _read(path: Path) -> dict[str, float]:
    """CPU time in ms; the file is in the page cache."""
    import agviz

    clock = time.thread_time
    rng = random.Random(0)
    begin = clock()
    with agviz.Trace.open(path) as trace:
        opened = clock()
        task = trace.graph_tasks[0].id
        count = trace.event_count(task)
        known = clock()
        pages = [_time(trace.events, task, rng.randrange(count), 200) for _ in range(_PLACES)]
        first = _time(trace.state_at, task, count // 2)
        seeks = [_time(trace.state_at, task, rng.randrange(count)) for _ in range(_PLACES)]
        trace.state_at(task, count // 2)
        steps = [_time(trace.state_at, task, count // 2 + n) for n in range(1, _PLACES)]
        return {
            "opening, ms": 1e3 * (opened - begin),
            "graph tasks, ms": 1e3 * (known - opened),
            "page of events, ms": statistics.median(pages),
            "first state, ms": first,
            "state anywhere, ms": statistics.median(seeks),
            "state anywhere, worst, ms": max(seeks),
            "one event on, ms": statistics.median(steps),
            "one event on, worst, ms": max(steps),
            "nodes, ms": _time(trace.nodes, task),
        }


def _time(call: Any, *arguments: Any) -> float:
    begin = time.thread_time()
    call(*arguments)
    return 1e3 * (time.thread_time() - begin)


def _sequence(cell: Any) -> Any:
    import torch

    h = c = torch.zeros(1, 4)
    total = torch.zeros(())
    for _ in range(35):
        h, c = cell(torch.randn(1, 4), (h, c))
        total = total + h.sum()
    return total


def _step(losses: Sequence[Any], leaves: Sequence[Any]) -> list[float]:
    for leaf in leaves:
        leaf.grad = None
    found = [0.0] * 4
    for make in losses:
        times = [(time.thread_time_ns(), time.perf_counter_ns())]
        loss = make()
        times.append((time.thread_time_ns(), time.perf_counter_ns()))
        loss.backward()
        times.append((time.thread_time_ns(), time.perf_counter_ns()))
        for part in range(2):
            for clock in range(2):
                found[2 * part + clock] += times[part + 1][clock] - times[part][clock]
    return found


_made: dict[str, tuple[Sequence[Any], Sequence[Any]]] = {}


def _graph(name: str) -> tuple[Sequence[Any], Sequence[Any]]:
    """The losses and leaves of a graph, made once."""
    if name not in _made:
        import torch

        from benchmarks.graphs import GRAPHS
        from benchmarks.small_models import SMALL

        torch.manual_seed(0)
        if name.startswith("small "):
            model = SMALL[name.removeprefix("small ")]()
            _made[name] = model.losses, model.leaves
        else:
            graph = GRAPHS[name]()
            _made[name] = [graph.forward], graph.leaves
    return _made[name]


class _Unknown(Exception):  # noqa: N818 - no error: this tree has no such thing
    """This tree can't run a graph in this way."""


@contextlib.contextmanager
def _around(how: str) -> Iterator[None]:
    """What is entered around the steps."""
    import agviz
    import agviz_engine

    if how == "native":
        yield
    elif how == "engine":
        with agviz_engine.installed():
            yield
    elif how == "none":
        with agviz.trace(values="none", provenance=False):
            yield
    elif how == "health":
        with agviz.trace():
            yield
    elif how == "forward":
        with agviz.trace(check_forward=True):
            yield
    elif how.startswith("observed"):
        values: Any = how.removeprefix("observed").strip() or "none"
        try:
            recorded = agviz.trace(engine="native", values=values, provenance=False)
        except TypeError:  # a tree from before observe mode
            raise _Unknown from None
        with recorded:
            yield
    else:
        debugger = _debugger()
        with agviz.trace() as recorded:
            attached = debugger(recorded._recording)
            recording: Any = recorded._recording
            observers = getattr(recording, "observers", None) or recording.hearing
            attached.install(observers)
            attached.attach(lambda *_: None)
            try:
                yield
            finally:
                attached.detach()


def _debugger() -> Any:
    for name in _DEBUGGER:
        with contextlib.suppress(ImportError, AttributeError):
            return importlib.import_module(name).Debugger
    raise _Unknown


def main(tree: str) -> None:
    """Answer until stdin ends."""
    own = str(Path(__file__).parents[1])
    sys.path[:1] = [own]
    import benchmarks  # noqa: F401 - of this file's tree, whatever the other one has

    sys.path[:1] = [tree, str(Path(tree, "engine"))]
    import torch

    import agviz
    import agviz_engine

    torch.set_num_threads(1)
    with agviz_engine.installed():
        pass  # what is made once per process is made now
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps([agviz.__file__, agviz_engine.__file__]), file=answers, flush=True)
    functions = {"sample": sample, "reading": reading}
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        found = functions[name](*arguments)  # type: ignore[operator]
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
