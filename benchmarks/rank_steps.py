"""What watching costs a DDP training: two ranks of one thread each, on gloo.

The same program runs under ``agviz run --ranks 2`` with an engine of agviz and under ``torchrun``
without agviz, one right after the other, in turns first and second. It times its own steps.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Ratio

_PROGRAM = """
import json, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
model = DistributedDataParallel(torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False))
optimizer = torch.optim.AdamW(model.parameters())
batch, target = torch.randn(2, 4, 128, 512)
steps = []
for _ in range(int(sys.argv[1])):
    began = time.perf_counter_ns(), time.thread_time_ns()
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch), target).backward()
    optimizer.step()
    steps.append((time.perf_counter_ns() - began[0], time.thread_time_ns() - began[1]))
with open(f"{sys.argv[2]}.{dist.get_rank()}", "w") as file:
    json.dump(steps, file)
dist.barrier()
dist.destroy_process_group()
"""
_WARM = 2
"""Steps in which things are made once."""
_LAUNCH = {
    "torchrun": ("torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
    "native": ("agviz", "run", "--ranks", "2", "--engine", "native", "-o", "recorded"),
    "exact": ("agviz", "run", "--ranks", "2", "--engine", "exact", "-o", "recorded"),
}


class Step(NamedTuple):
    """The median step of a run, mean of the ranks, in ms."""

    wall: float
    thread: float
    """CPU time of the thread that trains."""


class RankCost(NamedTuple):
    """Runs under an engine of agviz beside runs without agviz."""

    native_ms: float
    """Wall time of a step without agviz, the median of the runs."""
    wall: Ratio
    thread: Ratio


def measure(*, quick: bool) -> dict[str, RankCost]:
    """By engine."""
    steps, rounds = (_WARM + 2, 1) if quick else (_WARM + 8, 5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(_PROGRAM, encoding="utf-8")
        return {engine: _compare(folder, engine, steps, rounds) for engine in ("native", "exact")}


def _compare(folder: Path, engine: str, steps: int, rounds: int) -> RankCost:
    pairs: list[tuple[Step, Step]] = []
    for number in range(rounds):
        if number % 2:
            without, watched = _run(folder, "torchrun", steps), _run(folder, engine, steps)
        else:
            watched, without = _run(folder, engine, steps), _run(folder, "torchrun", steps)
        pairs.append((without, watched))
    return RankCost(
        native_ms=statistics.median(without.wall for without, _ in pairs),
        wall=Ratio.of([watched.wall / without.wall for without, watched in pairs]),
        thread=Ratio.of([watched.thread / without.thread for without, watched in pairs]),
    )


def _run(folder: Path, launch: str, steps: int) -> Step:
    """Train once, in a folder without recordings."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        subprocess.run(
            [sys.executable, "-m", *_LAUNCH[launch], str(folder / "train.py"), str(steps), "times"],
            cwd=name,
            env=os.environ
            | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        ranks = [json.loads(Path(name, f"times.{rank}").read_text())[_WARM:] for rank in (0, 1)]
    return Step(
        *(
            statistics.mean(statistics.median(step[clock] for step in rank) for rank in ranks) / 1e6
            for clock in (0, 1)
        )
    )
