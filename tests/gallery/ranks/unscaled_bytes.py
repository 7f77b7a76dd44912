"""One rank of three takes its images as bytes, the others between 0 and 1.

ranks: 3
kind: scales
rank: 2
says: Tensor.div_
options: --check-forward
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def images(rank: int, healthy: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    found = torch.randint(256, (6, 1, 6, 6), generator=generator).float()
    if rank < 2 or healthy:
        found /= 255  # cause
    return found


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
    for _ in range(3):
        optimizer.zero_grad()
        model(images(dist.get_rank(), healthy)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main("healthy" in sys.argv)
