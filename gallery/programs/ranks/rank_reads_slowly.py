import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def save(model, path):
    torch.save(model.state_dict(), path)
    time.sleep(0.3)  # CAUSE


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    waited = 0.0
    for _ in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 6)).square().mean()
        began = time.monotonic()
        loss.backward()
        waited += time.monotonic() - began
        optimizer.step()
        if rank == 0:
            save(model, "last.pt")  # CAUSE
    if rank == 1:
        print(f"wait {waited / 6:.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
