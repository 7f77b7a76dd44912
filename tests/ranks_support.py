"""A real distributed program of two processes, recorded: what reads many ranks is tested on it."""

from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from tests import python_process

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

PROGRAM: Final = """\
import itertools, os, pathlib, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=size)
torch.set_num_threads(1)


class Slow(torch.autograd.Function):
    passes = itertools.count()

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        came = pathlib.Path(f"{sys.argv[1]}.{next(Slow.passes)}")
        if rank == 0:
            came.touch()
        else:
            while not came.exists():
                time.sleep(0.001)
            time.sleep(0.25)
        return gradient


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 16)
        self.last = torch.nn.Linear(16, 16)

    def forward(self, x):
        return self.last(Slow.apply(self.first(x).tanh()))


torch.manual_seed(0)
model = DistributedDataParallel(Net(), bucket_cap_mb=0.001)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
"""
"""Rank 1 is late in each backward pass, so rank 0 waits for it.

Rank 1 starts to sleep when rank 0 has come to the same node, however late a busy machine made that.
"""
PASSES: Final = 3
SLEPT_NS: Final = 250_000_000


def record_ranks(script: Path, folder: Path, *arguments: str, size: int) -> Path:
    """Run a script in so many processes, each of which leaves a trace in ``folder``.

    They have the variables of torchrun; who wants to see torchrun itself takes ``rank_support``.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    def record(rank: int) -> subprocess.CompletedProcess[str]:
        number = str(rank)
        own = {"RANK": number, "LOCAL_RANK": number, "OMP_NUM_THREADS": "1"}
        named = script.name if script.parent == folder else str(script)
        command = [sys.executable, "-m", "agviz", "run", named, *arguments]
        return python_process.run(command, cwd=folder, env=os.environ | world | own)

    with ThreadPoolExecutor(size) as pool:
        for ended in pool.map(record, range(size)):
            assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder
