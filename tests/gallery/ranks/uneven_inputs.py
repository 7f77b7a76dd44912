"""One rank has fewer batches than the others and leaves the loop, without Join.

ranks: 2
kind: uneven inputs
rank: 1
ends: error
"""

import contextlib
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=5))
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(14, 28), nn.ReLU(), nn.Linear(28, 28), nn.ReLU(), nn.Linear(28, 3)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    batches = [(torch.randn(8, 14), torch.randint(3, (8,))) for _ in range(6 if rank == 0 else 4)]
    with Join([model]) if healthy else contextlib.nullcontext():
        for x, y in batches:
            time.sleep(0.15)  # moves it to the device
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()  # cause
            optimizer.step()
    if healthy:
        dist.barrier()
    else:
        time.sleep(8)  # writes what it has learned
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
