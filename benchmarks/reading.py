"""How quickly a long trace is read: recorded here by our engine, read in a process of its own.

It is recorded at level health, as it is where nobody says otherwise.

``python -m benchmarks.reading FILE`` is that process. It measures CPU time, with the file in the
page cache: opening, pages of events and states at random places, steps forwards from one place.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

PAGE = 200
PLACES = 300
_STEPS = 35
_PASSES_BEFORE = 200


class Times(NamedTuple):
    """Of many calls, in ms."""

    median: float
    worst: float

    @classmethod
    def of(cls, taken: list[float]) -> Times:
        """From the time of each."""
        return cls(statistics.median(taken), max(taken))


class Reading(NamedTuple):
    """What reading one trace took: CPU time in ms; where a name says so, wall time in s."""

    events: int
    graph_tasks: int
    nodes: int
    """Of the largest graph task."""
    bytes_per_event: float
    record_s: float
    """Forward, backward and recording."""
    close_s: float
    """Closing the recording."""
    import_: float
    """Importing the reader."""
    open: float
    first_page: float
    page: Times
    node_columns: float
    """``Trace.nodes`` of the largest graph task."""
    first_seek: float
    """In the largest graph task, which is then known."""
    seek: Times
    step: Times
    summary_s: float
    """``agviz summary``, the start of Python included."""


def measure(*, quick: bool) -> dict[str, Reading]:
    """One long backward pass, and many short ones, of about a million events each."""
    sequences = 20 if quick else 200
    _train_before()
    return {
        f"1 backward pass over {sequences} sequences": _measure([sequences]),
        f"{sequences} backward passes": _measure([1] * sequences),
        f"1 backward pass, {sequences * 450:,} nodes ready at once": _measure([], sequences * 450),
    }


def _train_before() -> None:
    """Graph tasks have numbers of two bytes, as they have in most of a training."""
    import torch

    import agviz_engine

    x = torch.ones(1, requires_grad=True)
    with agviz_engine.installed():
        for _ in range(_PASSES_BEFORE):
            x.exp().backward()


def _measure(passes: list[int], wide: int = 0) -> Reading:
    import torch

    import agviz_engine
    from agviz.record.recorder import Recorder
    from benchmarks.graphs import wide as make_wide

    torch.manual_seed(0)
    cell = torch.nn.LSTMCell(4, 4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.agviz")
        recorder = Recorder(path, values="health")
        begin = time.perf_counter()
        with agviz_engine.installed(recorder, nonfinite_check=True):
            for sequences in passes:
                torch.stack([_sequence(cell) for _ in range(sequences)]).sum().backward()
            if wide:
                make_wide(wide).forward().backward()
        recorded = time.perf_counter()
        recorder.close()
        closed = time.perf_counter()
        found = json.loads(_run("benchmarks.reading", str(path)))
        begin_summary = time.perf_counter()
        _run("agviz", "summary", str(path))
        times = {key: Times(*found[key]) for key in ("page", "seek", "step")}
        return Reading(
            **(found | times),
            bytes_per_event=path.stat().st_size / found["events"],
            record_s=recorded - begin,
            close_s=closed - recorded,
            summary_s=time.perf_counter() - begin_summary,
        )


def record_sequences(path: Path, sequences: int) -> None:
    """Record one backward pass over so many sequences, of some 5,400 events each, and one NaN."""
    import torch

    import agviz_engine
    from agviz.record.recorder import Recorder

    torch.manual_seed(0)
    cell = torch.nn.LSTMCell(4, 4)
    with Recorder(path) as recorder, agviz_engine.installed(recorder, nonfinite_check=True):
        loss = torch.stack([_sequence(cell) for _ in range(sequences)]).sum()
        (loss + 0 * torch.zeros((), requires_grad=True).sqrt()).backward()


def record_run(path: Path, passes: int, layers: int = 13) -> None:
    """Record the steps of a small perceptron, one of them with a NaN.

    Args:
        path: of the file.
        passes: how many steps.
        layers: of the perceptron: 13 make some 530 events a step, 2 some 94.
    """
    import torch
    from torch import nn

    import agviz

    torch.manual_seed(0)
    inner = [layer for _ in range(layers - 1) for layer in (nn.Linear(8, 8), nn.Tanh())]
    model = nn.Sequential(*inner, nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with agviz.trace(path=path):
        for step in range(passes):
            optimizer.zero_grad()
            is_wrong = step == passes // 3
            loss = model(torch.randn(4, 8)).square().mean() * (float("nan") if is_wrong else 1.0)
            loss.backward()
            if not is_wrong:
                optimizer.step()


def _sequence(cell: Callable[..., tuple[Tensor, Tensor]]) -> Tensor:
    import torch

    h = c = torch.zeros(1, 4)
    total = torch.zeros(())
    for _ in range(_STEPS):
        h, c = cell(torch.randn(1, 4), (h, c))
        total = total + h.sum()
    return total


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def _main(path: str) -> None:
    clock = time.thread_time
    begin = clock()
    from agviz.traces.reader import Trace

    imported = clock()
    trace = Trace.open(path)
    opened = clock()

    def time_of(call: Callable[[], object]) -> float:
        began = clock()
        call()
        return 1e3 * (clock() - began)

    rng = random.Random(0)
    events = trace.event_count()
    first_page = time_of(lambda: trace.events(offset=events // 2, limit=PAGE))
    pages = []
    for _ in range(PLACES):
        task = rng.choice(trace.graph_tasks).id
        offset = rng.randrange(trace.event_count(task))
        pages.append(time_of(partial(trace.events, task, offset, PAGE)))
    largest = max(trace.graph_tasks, key=lambda task: task.nodes)
    middle = trace.event_count(largest.id) // 2
    first_seek = time_of(lambda: trace.state_at(largest.id, middle))
    seeks = []
    for _ in range(PLACES):
        task = rng.choice(trace.graph_tasks).id
        place = rng.randrange(trace.event_count(task) + 1)
        seeks.append(time_of(partial(trace.state_at, task, place)))
    trace.state_at(largest.id, middle)
    steps = [
        time_of(partial(trace.state_at, largest.id, place))
        for place in range(middle + 1, middle + PLACES)
    ]
    print(
        json.dumps(
            {
                "events": events,
                "graph_tasks": len(trace.graph_tasks),
                "nodes": largest.nodes,
                "import_": 1e3 * (imported - begin),
                "open": 1e3 * (opened - imported),
                "first_page": first_page,
                "page": Times.of(pages),
                "first_seek": first_seek,
                "seek": Times.of(seeks),
                "step": Times.of(steps),
                "node_columns": time_of(lambda: trace.nodes(largest.id)),
            }
        )
    )


if __name__ == "__main__":
    _main(*sys.argv[1:])
