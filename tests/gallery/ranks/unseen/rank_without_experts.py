"""One rank has no token for an expert, whose parameters DDP then waits for.

ranks: 2
kind: divergent forward
rank: 1
step: 2
parameter: module.experts.1.weight
ends: error
"""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Experts(nn.Module):
    """Each token goes to the expert of its language."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.give = nn.Linear(16, 30)

    def forward(self, tokens: Tensor, languages: Tensor) -> Tensor:
        x = self.embed(tokens)
        parts = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = languages == number
            if mine.any():
                parts = parts.index_put((mine,), expert(x[mine]))  # cause
        return self.give(x + parts)


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Experts())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(5):
        time.sleep(0.15)  # reads a batch
        tokens = torch.randint(30, (20,))
        languages = torch.arange(20) % 2
        if step == 2 and rank == 1 and not healthy:
            languages = torch.zeros(20, dtype=torch.int64)
        optimizer.zero_grad()
        scores = model(tokens, languages)
        nn.functional.cross_entropy(scores, tokens.roll(1)).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
