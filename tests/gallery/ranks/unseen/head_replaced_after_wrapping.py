"""A new head is put in after DDP has hooked the old one; each rank trains a head of its own.

ranks: 3
kind: lost hooks
parameter: module.head.weight
parameter: module.head.bias
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Classifier(nn.Module):
    """A body, and a head for so many classes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(18, 36), nn.LayerNorm(36), nn.GELU())
        self.head = nn.Linear(36, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = Classifier()
    if healthy:
        net.head = nn.Linear(36, 10)
    model = DistributedDataParallel(net, find_unused_parameters=True)
    torch.manual_seed(rank)
    if not healthy:
        model.module.head = nn.Linear(36, 10)  # cause
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        x, y = torch.randn(8, 18), torch.randint(10, (8,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
