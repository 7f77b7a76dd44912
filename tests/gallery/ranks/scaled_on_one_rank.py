"""no_sync is used rightly, and one rank scales its gradient after the reduction: no lack of it.

ranks: 2
kind: not reduced
says: changed after backward
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + rank)
    for _ in range(3):
        optimizer.zero_grad()
        x, more = torch.randn(2, 8, 12)
        with model.no_sync():
            (nn.functional.mse_loss(model(x), x[:, :2]) / 2).backward()
        (nn.functional.mse_loss(model(more), more[:, :2]) / 2).backward()
        if rank == 1 and not healthy:
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.mul_(1.5)  # cause
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main("healthy" in sys.argv)
