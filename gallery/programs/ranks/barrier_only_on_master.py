import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(5, 1))
    for step in range(4):
        model(torch.randn(4, 5)).square().mean().backward()
        if step == 1 and rank == 0:
            torch.save(model.state_dict(), "model.pt")
            print("saved", flush=True)
            dist.barrier()  # CAUSE
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
