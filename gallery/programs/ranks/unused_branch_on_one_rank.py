import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.near, self.far = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, use_far):
        out = self.near(x)
        if use_far:  # CAUSE
            out = out + self.far(x)  # CAUSE
        return out


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(Experts())
    for step in range(3):
        x = torch.randn(5, 4)
        model(x, use_far=step == 2).square().mean().backward()  # CAUSE
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
