import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(3, 1))
    torch.manual_seed(rank)
    best, patience = float("inf"), 0
    for step in range(50):
        x = torch.randn(4, 3) * (1 + 5 * rank)
        loss = model(x).square().mean()
        model.zero_grad()
        loss.backward()  # CAUSE
        patience = patience + 1 if loss.item() >= best else 0
        best = min(best, loss.item())
        if patience > 1 and rank == 1:
            print("rank", rank, "stops at", step, flush=True)
            break  # CAUSE
    time.sleep(60 * rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
