import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = torch.randn(7, 6).split(4)[rank::world] if rank else torch.randn(8, 6).split(4)
    for step, batch in enumerate(samples):  # CAUSE
        print("rank", rank, "step", step, flush=True)
        optimizer.zero_grad()
        model(batch).square().mean().backward()  # CAUSE
        optimizer.step()
    torch.zeros(1).fill_(rank)
    if rank:
        import time

        time.sleep(60)  # validates alone
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
