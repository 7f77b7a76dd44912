"""The program reduces gradients itself, each rank of its own batch, and does not divide them.

ranks: 2
kind: summed
says: get_world_size
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module, healthy: bool) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)  # cause
        if healthy:
            parameter.grad /= dist.get_world_size()


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    torch.manual_seed(0)
    embedding, head = nn.Embedding(20, 8), nn.Linear(8, 5)
    model = nn.ModuleList([embedding, head])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(4):
        words, labels = torch.randint(0, 20, (16, 6)), torch.randint(0, 5, (16,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(embedding(words).mean(1)), labels).backward()
        average_gradients(model, healthy)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main("healthy" in sys.argv)
