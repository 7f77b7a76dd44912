"""What ranks that multiprocessing spawned raised outside of backward, or died of, is told."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from agviz.cli.main import main
from tests import python_process

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

HEADS = """
import os, sys, torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.left, self.right = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)
    def forward(self, x, side):
        return getattr(self, side)(self.trunk(x))

def train(rank):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(Heads())
    for _ in range(2):
        model(torch.ones(2, 3), ("left", "right")[rank]).sum().backward()

if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
"""
SIZES = """
import os, torch
import torch.distributed as dist
import torch.multiprocessing as mp

def train(rank):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=2)
    weight = torch.ones(5 + rank, requires_grad=True)
    weight.sum().backward()
    dist.all_reduce(weight.grad)
    dist.barrier()

if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
"""

ORDER = """
import os, sys, torch
import torch.distributed as dist
import torch.multiprocessing as mp

def reduced(value):
    dist.all_reduce(value)
    return value

def train(rank):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=2)
    weight = torch.ones(2, requires_grad=True)
    for _ in range(2):
        weight.sum().backward()
        mine, other = torch.ones(2), torch.zeros(2)
        for source in range(2):
            dist.broadcast(mine if rank == source else other, source)
        meters = {"loss": torch.ones(()), "hits": torch.zeros(())}
        for name in sorted(meters, reverse=rank == 1 and ORDERS == 2):
            reduced(meters[name])
    sys.stdout.write(f"loss {meters['loss'].item()}\\n")  # at once: ranks share the output
    dist.barrier()

if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
"""


def told(
    program: str, folder: Path, capsys: pytest.CaptureFixture[str], code: int = 1
) -> tuple[str, subprocess.CompletedProcess[str]]:
    """What agviz says of a program, in one line, and how that ended."""
    (folder / "train.py").write_text(program)
    command = [sys.executable, "-m", "agviz", "run", "-o", "t.agviz", "train.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = python_process.run(command, cwd=folder, env=environment, timeout=240)
    assert main(["explain", str(folder)]) == code
    return " ".join(capsys.readouterr().out.split()), ended


@pytest.mark.slow
def test_which_parameters_each_rank_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, ended = told(HEADS, tmp_path, capsys)
    assert "Expected to have finished reduction" in ended.stderr, "the oracle is torch"
    assert (
        "✗ rank 0: module.right.weight, module.right.bias;"
        " rank 1: module.left.weight, module.left.bias got no gradient" in text
    )
    assert "Rank 1 used module.right.weight at train.py:13 in forward" in text
    assert "freeze them" not in text


@pytest.mark.slow
def test_both_sides_of_a_collective_in_which_a_rank_dies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, ended = told(SIZES, tmp_path, capsys)
    assert ended.returncode != 0
    assert "rank 0 called all_reduce of float32 [5] at train.py:10 in train" in text
    if "came out of" in text:  # gloo lets the rank with the larger tensor go on, or not
        assert "rank 1 went on to barrier at train.py:11 in train" in text
    else:
        assert "different sizes" in text
        assert "rank 1 called all_reduce of float32 [6] at train.py:10 in train" in text


def test_tensors_that_ranks_reduce_in_different_orders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Operation, shape and line are the same: what differs is which tensor each hands in."""
    text, ended = told(ORDER.replace("ORDERS", "2"), tmp_path, capsys)
    assert ended.stdout.count("loss 1.0") == 2, "a loss of one rank, and hits of the other"
    assert text.startswith("✗ ranks 0 and 1 hand tensors to collectives in different orders")
    assert "train.py:7 in reduced" in text
    assert "rank 0 hands in meters['hits'], rank 1 hands in meters['loss']" in text


@pytest.mark.slow
def test_ranks_that_reduce_in_one_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Broadcasts get another tensor on each rank, crosswise: that is what they are for."""
    text, ended = told(ORDER.replace("ORDERS", "1"), tmp_path, capsys, code=0)
    assert ended.stdout.count("loss 2.0") == 2
    assert text.startswith("✓")
