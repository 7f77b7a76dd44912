import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 4)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        alone = model.weight.grad.clone()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # CAUSE
        optimizer.step()
    if rank == 0:
        print(f"ratio {(model.weight.grad / alone).mean().item():.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
