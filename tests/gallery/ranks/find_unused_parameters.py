"""A task is chosen at random in each step, by all ranks alike; DDP looks which head was not used.

ranks: 2
kind: healthy
ends: well
"""

import random
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class ManyTasks(nn.Module):
    """A trunk and a head for each task."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, 40), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(40, 2) for _ in range(3))

    def forward(self, x: Tensor, task: int) -> Tensor:
        return self.heads[task](self.trunk(x))


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    torch.manual_seed(0)
    chance = random.Random(1)
    model = DistributedDataParallel(ManyTasks(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(8):
        x, y = torch.randn(8, 20), torch.randint(2, (8,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x, chance.randrange(3)), y).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
