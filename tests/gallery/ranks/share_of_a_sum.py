"""Gradients are summed over ranks, and each rank's loss is its share of the mean over all batches.

ranks: 2
kind: healthy
ends: well
"""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    torch.manual_seed(0)
    model = nn.Linear(12, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(4):
        x = torch.randn(8, 12)
        optimizer.zero_grad()
        ((model(x) - x[:, :2]).square().mean() / dist.get_world_size()).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
