"""One rank computes a gradient in a slow loop; the others wait for it in every step.

ranks: 3
kind: slow node
rank: 1
node: SmoothBackward
ends: well
"""

import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Smooth(torch.autograd.Function):
    """A blur with a backward of its own, which lacks its fast kernel on some machines."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, has_kernel: bool) -> Tensor:
        ctx.has_kernel = has_kernel
        return 0.5 * x + 0.25 * (x.roll(1, -1) + x.roll(-1, -1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if not ctx.has_kernel:
            time.sleep(0.15)
        return 0.5 * grad + 0.25 * (grad.roll(1, -1) + grad.roll(-1, -1)), None


class Smoothed(nn.Module):
    """Layers with a blur in the middle."""

    def __init__(self, has_kernel: bool) -> None:
        super().__init__()
        self.has_kernel = has_kernel
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128))
        self.decoder = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 8))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.encoder(x)
        hidden = Smooth.apply(hidden, self.has_kernel)  # cause
        return self.decoder(hidden)


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Smoothed(healthy or rank != 1), bucket_cap_mb=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for _ in range(6):
        x, y = torch.randn(16, 64), torch.randint(8, (16,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
