"""The backward of a custom function raises on one rank; the others wait for its gradients.

ranks: 3
kind: raised
rank: 2
step: 3
node: RoundBackward
says: ValueError: gradient of 8 rows for 5
ends: error
"""

import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Round(torch.autograd.Function):
    """Rounds, with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: int) -> Tensor:
        ctx.rows = rows
        return x.mul(16).round().div(16)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if len(grad) != ctx.rows:
            raise ValueError(f"gradient of {len(grad)} rows for {ctx.rows}")
        return grad, None


class Quantized(nn.Module):
    """Its hidden values have four bits after the point."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(10, 30)
        self.outer = nn.Linear(30, 2)

    def forward(self, x: Tensor, rows: int) -> Tensor:
        hidden = torch.tanh(self.inner(x))
        hidden = Round.apply(hidden, rows)  # cause
        return self.outer(hidden)


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=8))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Quantized())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(6):
        time.sleep(0.15)  # reads a batch
        x = torch.randn(8, 10)
        rows = 5 if step == 3 and rank == 2 and not healthy else 8
        optimizer.zero_grad()
        model(x, rows).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
