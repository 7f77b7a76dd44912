"""Two numbers are summed over all ranks, on one rank in another order: both sums are wrong.

ranks: 2
kind: collective order
rank: 0
operation: all_reduce
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def summed(loss: Tensor, correct: Tensor, loss_first: bool) -> tuple[Tensor, Tensor]:
    """Loss and hits of all ranks together."""
    if loss_first:
        dist.all_reduce(loss)
        dist.all_reduce(correct)
    else:
        dist.all_reduce(correct)  # cause
        dist.all_reduce(loss)
    return loss, correct


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(6):
        x, y = torch.randn(8, 16), torch.randint(4, (8,))
        scores = model(x)
        loss = nn.functional.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct = (scores.argmax(-1) == y).float().sum()
        loss_first = healthy or rank != 0 or step < 2
        total, hits = summed(loss.detach(), correct, loss_first)
        if rank == 0:
            print(f"loss {total:.3f} hits {hits:.0f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
