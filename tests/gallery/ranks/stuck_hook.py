"""A hook of one rank waits for a disk that does not answer; the others wait for its gradients.

ranks: 2
kind: stuck
rank: 1
step: 3
node: AddmmBackward0
hook: wait_for_disk
ends: error
"""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def wait_for_disk(grad: Tensor) -> Tensor:
    """Write the gradient down, some day."""
    time.sleep(25)  # cause
    return grad


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=9))
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(5):
        scores = model(torch.randn(8, 16))
        if step == 3 and rank == 1 and not healthy:
            scores.register_hook(wait_for_disk)
        optimizer.zero_grad()
        scores.square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
