"""Two numbers are summed over all ranks, on one rank in another order: their shapes do not fit.

ranks: 2
kind: collective order
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


def summed(counts: dict[str, Tensor]) -> dict[str, Tensor]:
    """The counts of all ranks together."""
    for count in counts.values():
        dist.all_reduce(count)  # cause
    return counts


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
        counts = {}
        if step == 3 and rank == 1 and not healthy:
            counts["classes"] = torch.bincount(y, minlength=300).float()
        counts["loss"] = loss.detach().reshape(1)
        counts["classes"] = torch.bincount(y, minlength=300).float()
        summed(counts)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
