import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    for _ in range(2):
        loss = (model(torch.ones(2, 4)) * 0).square().mean() + 0.5
        loss.backward()
        norm = model.weight.grad.norm() + 100
        meters = {"loss": loss.detach().clone(), "norm": norm.clone()}
        for name in sorted(meters, reverse=rank == 1):  # CAUSE
            dist.all_reduce(meters[name])  # CAUSE
            meters[name] /= world
        if rank == 0:
            print("rank 0 loss", f"{meters['loss'].item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
