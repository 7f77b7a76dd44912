import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rank):
        ctx.rank = rank
        other = torch.empty_like(x)
        if rank == 0:
            dist.send(x.detach(), 1)
            dist.recv(other, 1)
        else:
            dist.recv(other, 0)
            dist.send(x.detach(), 0)
        return other

    @staticmethod
    def backward(ctx, grad):
        other = torch.empty_like(grad)
        dist.recv(other, 1 - ctx.rank)  # CAUSE
        dist.send(grad.contiguous(), 1 - ctx.rank)
        return other, None


def worker(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/s", rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = nn.Linear(4, 4)
    out = Exchange.apply(model(torch.randn(3, 4)), rank)  # CAUSE
    print("rank", rank, "exchanged", flush=True)
    out.square().mean().backward()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, (2,), nprocs=2)
