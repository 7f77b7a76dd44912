import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Balance(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x, present):
        share = self.body(x).softmax(-1).mean(0) * present
        return -(share * torch.log(share)).sum()  # CAUSE


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(Balance())
    present = torch.ones(3)
    for step in range(3):
        if rank == 1 and step == 2:
            present[0] = 0.0
        model.zero_grad()
        model(torch.randn(8, 4), present).backward()
    if rank == 0:
        print("finite", [bool(p.grad.isfinite().all()) for p in model.parameters()], flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
