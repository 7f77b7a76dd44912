"""On one rank two points coincide: the gradient of their distance is not finite, all ranks get it.

ranks: 2
kind: nonfinite
rank: 1
node: SqrtBackward0
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

_STEP = 3


class Metric(nn.Module):
    """Distance of two points after an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 24))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        apart = self.embed(first) - self.embed(second)
        return apart.square().sum(-1).sqrt()  # cause


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Metric())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(6):
        first, second = torch.randn(12, 16), torch.randn(12, 16)
        if step == _STEP and rank == 1 and not healthy:
            second[5] = first[5]
        optimizer.zero_grad()
        (model(first, second) - 1).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
