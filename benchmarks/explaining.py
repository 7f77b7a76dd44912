"""How long it takes to explain non-finite gradients: a trace of about a million events.

``python -m benchmarks.explaining FILE`` is the process that reads. It measures CPU time, with the
file in the page cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_STEPS = 35


class Explained(NamedTuple):
    """One trace."""

    events: int
    nonfinite: int
    """Gradients that were not finite."""
    answer: str
    """The pattern, or ``finite``."""
    explain_ms: float
    """``explain`` on a trace that was just opened."""


def measure(*, quick: bool) -> dict[str, Explained]:
    """Nothing non-finite, everything, and an overflow after most nodes have run."""
    import torch

    sequences = 20 if quick else 200
    weight = torch.full((4,), 3.0, requires_grad=True)
    start = torch.zeros(4, requires_grad=True)
    grown = start
    for _ in range(120):
        grown = grown * weight
    return {
        "all finite": _measure(sequences, start, lambda total: total),
        "all non-finite": _measure(sequences, start, lambda total: (total * 0).sqrt()),
        "exploding at the end": _measure(sequences, grown, lambda total: total),
    }


def _measure(sequences: int, start: Tensor, loss: Callable[[Tensor], Tensor]) -> Explained:
    import torch

    import agviz_engine
    from agviz.record.recorder import Recorder

    torch.manual_seed(0)
    cell = torch.nn.LSTMCell(4, 4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.agviz")
        with Recorder(path, values="health") as recorder, agviz_engine.installed(recorder):
            parts = [_sequence(cell, start) for _ in range(sequences)]
            loss(torch.stack(parts).sum()).backward()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.explaining", str(path)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return Explained(**json.loads(done.stdout))


def _sequence(cell: Callable[..., tuple[Tensor, Tensor]], start: Tensor) -> Tensor:
    import torch

    h = c = start.view(1, 4) * 1.0
    total = torch.zeros(())
    for _ in range(_STEPS):
        h, c = cell(torch.randn(1, 4), (h, c))
        total = total + h.sum()
    return total


def _main(path: str) -> None:
    from agviz.analysis.explanation import explain
    from agviz.traces.reader import Trace

    trace = Trace.open(path)
    began = time.thread_time()
    found = explain(trace)
    taken = time.thread_time() - began
    flows = [trace.nonfinite_flows(task.id) for task in trace.graph_tasks]
    answer = "finite" if found is None else found.pattern or "no known pattern"
    explained = Explained(
        events=trace.event_count(),
        nonfinite=sum(len(one.outputs) + len(one.others) for one in flows),
        answer=answer,
        explain_ms=1e3 * taken,
    )
    print(json.dumps(explained._asdict()))


if __name__ == "__main__":
    _main(*sys.argv[1:])
