import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.heads = nn.ModuleDict({"depth": nn.Linear(16, 1), "normal": nn.Linear(16, 3)})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))  # CAUSE


def worker(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/s", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DDP(MultiTask())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(4):
        task = ("depth", "normal")[rank]  # CAUSE
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8), task).square().mean()  # CAUSE
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, (2,), nprocs=2)
