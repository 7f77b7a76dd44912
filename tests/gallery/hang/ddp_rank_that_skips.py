"""DistributedDataParallel waits for the gradients of a rank that has left its loop early.

node: AccumulateGrad
thread: MainThread
parameter: module.0.weight
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def train(rank: int, store: Path, steps: int) -> None:
    """The loop of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    parallel = nn.parallel.DistributedDataParallel(model)
    for _ in range(steps):
        parallel(torch.ones(2, 4)).sum().backward()  # cause


def program() -> None:
    """Two ranks, one of which has a batch less."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "store")
        other = subprocess.Popen([sys.executable, __file__, store])
        train(0, store, steps=3)
        other.wait()


def other_rank(store: Path) -> None:
    """Train, and stay for as long as the first rank is there."""
    parent = os.getppid()
    train(1, store, steps=2)
    while os.getppid() == parent:
        time.sleep(0.1)
    shutil.rmtree(store.parent, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        other_rank(Path(sys.argv[1]))
    else:
        program()
