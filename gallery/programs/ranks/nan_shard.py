import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def shard(rank):
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(3, 8, 6, generator=generator)
    if rank == 1:
        x[1, 4, 2] = float("nan")  # CAUSE
    return x


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in shard(rank):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    if rank == 0:
        print("grads finite:", all(bool(p.grad.isfinite().all()) for p in model.parameters()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
