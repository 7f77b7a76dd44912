"""One rank skips a block that the others use, because its random numbers differ.

ranks: 3
kind: divergent forward
rank: 1
step: 3
parameter: module.blocks.2.0.weight
ends: error
"""

import random
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class StochasticDepth(nn.Module):
    """Residual blocks, some of which are left out at random."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)) for _ in range(4)
        )
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if self.chance.random() < 0.95:
                x = x + block(x)  # cause
        return self.head(x)


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    rank = dist.get_rank()
    torch.manual_seed(0)
    chance = random.Random(1 if healthy else (1, 335, 4)[rank])
    model = DistributedDataParallel(StochasticDepth(chance))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for _ in range(6):
        time.sleep(0.15)  # reads a batch
        x, y = torch.randn(8, 32), torch.randint(3, (8,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
