import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(2):
        optimizer.zero_grad()
        with model.no_sync():  # CAUSE
            for micro in range(3):
                (model(torch.randn(4, 5)).square().mean() / 3).backward()
        optimizer.step()
    weight = model.module[0].weight.detach().clone()
    dist.broadcast(weight, 0)
    if rank == 1:
        print("ranks agree:", torch.allclose(weight, model.module[0].weight), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
