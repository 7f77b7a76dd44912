"""A rank ends itself between two passes, before its time is up, to be queued again.

ranks: 2
kind: exited
rank: 1
operation: os._exit
ends: error
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(6):
        time.sleep(0.15)  # reads a batch
        if step == 4 and rank == 1 and not healthy:
            time.sleep(1.2)
            os._exit(85)  # cause
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
