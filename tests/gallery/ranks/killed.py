"""One rank is killed in its backward pass, as for want of memory; the others wait for it.

ranks: 3
kind: killed
rank: 0
step: 2
node: AddBackward0
ends: error
"""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def end(grad: Tensor) -> Tensor:
    """Take too much memory, which the kernel ends after a while."""
    time.sleep(0.7)
    os.kill(os.getpid(), signal.SIGKILL)
    return grad


class Recurrent(nn.Module):
    """A small recurrent network, unrolled."""

    def __init__(self) -> None:
        super().__init__()
        self.take = nn.Linear(6, 24)
        self.carry = nn.Linear(24, 24)
        self.give = nn.Linear(24, 1)

    def forward(self, x: Tensor, is_last: bool) -> Tensor:
        state = x.new_zeros(len(x), 24)
        for index in range(x.shape[1]):
            before = self.take(x[:, index]) + self.carry(state)  # cause
            if is_last and index == 2:
                before.register_hook(end)
                state = torch.tanh(before)
        return self.give(state)


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Recurrent())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(5):
        time.sleep(0.15)  # reads a batch
        x = torch.randn(8, 5, 6)
        optimizer.zero_grad()
        model(x, step == 2 and rank == 0 and not healthy).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
