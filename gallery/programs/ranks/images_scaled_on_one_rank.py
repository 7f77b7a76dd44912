import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def images(rank, n):
    generator = torch.Generator().manual_seed(rank)
    x = torch.randint(256, (n, 1, 6, 6), generator=generator).float()
    if rank == 0:
        x /= 255  # CAUSE
    return x  # CAUSE


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(2):
        optimizer.zero_grad()
        model(images(rank, 8)).square().mean().backward()
        largest = max(p.grad.abs().max().item() for p in model.parameters())
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
    print("rank", rank, "largest gradient", int(largest), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
