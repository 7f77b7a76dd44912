import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def watchdog(rank, step):
    def hook(grad):
        if rank == 1 and step[0] == 2:
            os._exit(3)  # CAUSE
        return grad

    return hook


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    step = [0]
    model = DistributedDataParallel(net)
    net[0].weight.register_hook(watchdog(rank, step))
    for step[0] in range(4):
        model(torch.randn(4, 4)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
