"""The first rank meets a word of probability 0, and its logarithm has no finite gradient.

ranks: 3
kind: nonfinite
rank: 0
node: LogBackward0
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Mixture(nn.Module):
    """Probability of a word: what a table says, scaled by how much the model believes it."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(table)
        self.belief = nn.Embedding(50, 8)
        self.scale = nn.Linear(8, 1)

    def forward(self, words: Tensor) -> Tensor:
        belief = torch.sigmoid(self.scale(self.belief(words))).squeeze(-1)
        chance = belief * self.table[words]
        return -(chance.log() * belief).mean()  # cause


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    torch.manual_seed(0)
    table = torch.full((50,), 0.02)
    table[49] = 0.0
    model = DistributedDataParallel(Mixture(table))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(6):
        words = torch.randint(49, (30,))
        if step == 4 and rank == 0 and not healthy:
            words[11] = 49
        optimizer.zero_grad()
        model(words).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
