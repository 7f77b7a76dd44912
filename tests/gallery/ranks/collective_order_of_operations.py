"""One rank broadcasts the settings before it sums the loss, the others after it: all wait.

ranks: 3
kind: collective order
rank: 2
operation: all_reduce
operation: broadcast
ends: error
"""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def share(loss: Tensor, settings: Tensor, is_late: bool) -> float:
    """The mean loss of all ranks, under the settings of the first."""
    if is_late:
        dist.broadcast(settings, src=0)  # cause
        dist.all_reduce(loss)
    else:
        dist.all_reduce(loss)
        dist.broadcast(settings, src=0)
    return float(loss * settings[0]) / dist.get_world_size()


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 300))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(5):
        time.sleep(0.15)  # reads a batch
        x, y = torch.randn(8, 16), torch.randint(300, (8,))
        scores = model(x)
        loss = nn.functional.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        settings = torch.full((6,), 1.0 / (step + 1))
        share(loss.detach(), settings, is_late=step == 3 and rank == 2 and not healthy)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
