"""One rank leaves an all_reduce out, because its loss is not high enough to be worth a word.

ranks: 2
kind: unequal collectives
rank: 1
operation: all_reduce
ends: error
"""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def log_outlier(loss: Tensor, limit: float) -> None:
    """Print the mean loss where it is high."""
    if loss > limit:
        mean = torch.stack([loss.detach(), torch.ones(())])
        dist.all_reduce(mean)  # cause
        print(f"loss {mean[0] / mean[1]:.3f}", flush=True)


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(6):
        time.sleep(0.15)  # reads a batch
        x = torch.randn(8, 16)
        y = 10 + x[:, :1] if step < 3 or rank == 0 or healthy else x[:, :1]
        loss = nn.functional.mse_loss(model(x), y)
        log_outlier(loss, limit=5.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
