"""A rank can't read its data in time; that is its own exception, not what another one's end gives.

ranks: 2
kind: raised
rank: 1
says: read timed out
ends: error
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def read(is_missing: bool) -> Tensor:
    if is_missing:
        raise TimeoutError("storage-3: read timed out")  # cause
    return torch.randn(8, 6)


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(6):
        x = read(step == 4 and rank == 1 and not healthy)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
