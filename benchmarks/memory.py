"""Peak memory during backward, each contender in a process of its own.

Each figure hides something. *Tensors*: what torch's CPU allocator reports to the profiler, exact,
but blind to Python objects. *Process*: how far the resident memory rose above where it was before
backward (``VmHWM`` of ``/proc``, reset first), which has everything and the noise of malloc, which
has to give back at once what is freed. *Peak*: where the resident memory was then, torch and
the forward's graph included.
"""

from __future__ import annotations

import gc
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from benchmarks.contenders import NATIVE, OURS, RECORDING
from benchmarks.graphs import GRAPHS

if TYPE_CHECKING:
    from benchmarks.graphs import Graph

CONTENDERS = {each.title: each for each in (NATIVE, OURS, *RECORDING)}
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


class Peak(NamedTuple):
    """Bytes: growth of tensors and of the process during backward, and the process at its peak."""

    tensors: float
    process: float
    peak: float


def measure(graph: str, repeats: int) -> dict[str, Peak]:
    """Peaks on the graph of that name by contender, medians of ``repeats`` processes each."""
    taken: dict[str, list[Peak]] = {title: [] for title in CONTENDERS}
    for _ in range(repeats):
        for title in CONTENDERS:
            (tensors,) = _in_a_process(graph, title, "tensors")
            taken[title].append(Peak(tensors, *_in_a_process(graph, title, "process")))
    return {
        title: Peak(*(statistics.median(column) for column in zip(*peaks, strict=True)))
        for title, peaks in taken.items()
    }


def _in_a_process(*arguments: str) -> list[float]:
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", *arguments],
        env={**os.environ, **_MALLOC},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [float(figure) for figure in json.loads(finished.stdout)]


def _main(graph_name: str, contender: str, kind: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    graph = GRAPHS[graph_name]()
    measured = {"tensors": _tensor_growth, "process": _process_growth}[kind]
    with CONTENDERS[contender].around():
        graph.forward().backward()  # what is made once is made now
        for leaf in graph.leaves:
            leaf.grad = None
        print(json.dumps(measured(graph)))


def _tensor_growth(graph: Graph) -> tuple[int]:
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:  # from the forward on, so that it knows the size of what backward frees
        loss = graph.forward()
        gc.collect()
        begin = time.time_ns()
        loss.backward()
    results = cast("Any", profile.profiler).kineto_results
    changes = [event for event in results.events() if event.name() == "[memory]"]
    held = peak = before = 0
    for event in sorted(changes, key=lambda event: int(event.start_ns())):
        held += event.nbytes()
        if event.start_ns() < begin:
            peak = before = held
        peak = max(peak, held)
    return (peak - before,)


def _process_growth(graph: Graph) -> tuple[int, int]:
    loss = graph.forward()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    loss.backward()
    peak = _status("VmHWM")
    return peak - before, peak


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise OSError(f"/proc/self/status has no {field}")
    return int(found[1]) * 1024


if __name__ == "__main__":
    _main(*sys.argv[1:])
