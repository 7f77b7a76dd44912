"""One value of one batch of one rank is missing, as NaN; all weights are NaN on all ranks then.

ranks: 3
kind: nonfinite
options: --check-forward
rank: 2
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

_STEP = 2


class Regression(nn.Module):
    """A value from twenty measurements."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(20, 40)
        self.norm = nn.LayerNorm(40)
        self.outer = nn.Linear(40, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inner(x)
        return self.outer(torch.relu(self.norm(hidden)))


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Regression())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(5):
        x = torch.randn(16, 20)
        y = x.sum(-1, keepdim=True)
        if step == _STEP and rank == 2 and not healthy:
            x[7, 3] = float("nan")  # cause
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
