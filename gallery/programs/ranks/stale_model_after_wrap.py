import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 10))
    model = DistributedDataParallel(net, find_unused_parameters=True)
    net[2] = nn.Linear(8, 3)  # CAUSE
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(10 + rank)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(6, 5)).square().mean().backward()
        optimizer.step()
    weight = net[2].weight.detach().clone()
    dist.broadcast(weight, 0)
    if rank == 1:
        print("head equal:", torch.equal(weight, net[2].weight), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
