import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    words = [30, 33][rank]  # CAUSE
    table = nn.Embedding(words, 4)
    table(torch.randint(30, (9,))).square().mean().backward()
    dist.all_reduce(table.weight.grad)  # CAUSE
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
