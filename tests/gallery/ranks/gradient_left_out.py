"""Gradients that are None are left out of the average, on one rank only.

ranks: 2
kind: left out
rank: 1
parameter: depth.weight
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Heads(nn.Module):
    """One for each task."""

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.normals, self.labels = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor, used: list[str]) -> Tensor:
        """The loss of the tasks of this batch."""
        total = x.new_zeros(())
        for name in used:
            total = total + self.get_submodule(name)(x).square().mean()
        return total


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Heads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for _ in range(4):
        x = torch.randn(8, 6)
        used = ["depth" if healthy or rank == 0 else "normals", "labels"]
        optimizer.zero_grad()
        model(x, used).backward()
        for parameter in model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)  # cause
                parameter.grad /= dist.get_world_size()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
