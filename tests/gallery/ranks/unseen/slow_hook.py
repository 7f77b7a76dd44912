"""The gradient hook of a convolution looks at each element in Python, but on the last rank only.

ranks: 4
kind: slow node
rank: 3
node: ConvolutionBackward0
ends: well
"""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Pictures(nn.Module):
    """A small convolutional network."""

    def __init__(self, watches: bool) -> None:
        super().__init__()
        self.watches = watches
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x))
        hidden = self.second(hidden)  # cause
        if self.watches:
            hidden.register_hook(watch)
        return self.last(torch.relu(hidden).mean((2, 3)))


def watch(grad: Tensor) -> None:
    """A histogram, made by hand."""
    until = time.monotonic() + 0.12
    counts: dict[int, int] = {}
    while time.monotonic() < until:
        for value in grad[0, 0, 0].tolist():
            counts[round(value * 1000)] = counts.get(round(value * 1000), 0) + 1


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Pictures(rank == 3 and not healthy))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(5):
        x, y = torch.randn(4, 1, 12, 12), torch.randint(5, (4,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
