import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels):
        ctx.labels = labels
        return logits.clone()

    @staticmethod
    def backward(ctx, grad):
        worst = int(ctx.labels.max())
        if worst >= grad.shape[1]:
            raise ValueError(f"label {worst} is out of range")  # CAUSE
        return grad, None


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(6, 4))
    for step in range(3):
        labels = torch.randint(4, (5,))
        if rank == 1 and step == 1:
            labels[2] = 7
        out = Weighted.apply(model(torch.randn(5, 6)), labels)
        out.square().mean().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
