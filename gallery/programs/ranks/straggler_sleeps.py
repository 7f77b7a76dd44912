import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.seconds)  # CAUSE
        return grad, None


class Net(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 1)
        self.seconds = seconds

    def forward(self, x):
        return self.b(Slow.apply(self.a(x), self.seconds))


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(Net(0.3 if rank == 1 else 0.0))
    began = time.monotonic()
    for _ in range(6):
        model(torch.randn(4, 8)).square().mean().backward()
    if rank == 0:
        print(f"wait {(time.monotonic() - began) / 6:.2f} s a step", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
