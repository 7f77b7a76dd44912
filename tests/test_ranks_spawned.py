"""What ranks that multiprocessing spawned raised outside of backward, or died of, is told."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from agviz.cli.main import main

if TYPE_CHECKING:
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


def told(
    program: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[str, subprocess.CompletedProcess[str]]:
    """What agviz says of a program that fails, in one line, and how that ended."""
    (folder / "train.py").write_text(program)
    ended = subprocess.run(
        [sys.executable, "-m", "agviz", "run", "-o", "t.agviz", "train.py"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert main(["explain", str(folder)]) == 1
    return " ".join(capsys.readouterr().out.split()), ended


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
    assert "different sizes" in text
    assert "rank 0 called all_reduce of float32 [5] at train.py:10 in train" in text
    assert "rank 1 called all_reduce of float32 [6] at train.py:10 in train" in text
