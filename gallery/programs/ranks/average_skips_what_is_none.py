import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


class MultiTask(nn.Module):
    def __init__(self, tasks=("depth", "normals", "labels")):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.heads = nn.ModuleDict({task: nn.Linear(32, 4) for task in tasks})

    def forward(self, x, tasks):
        h = self.trunk(x)
        return {task: self.heads[task](h) for task in tasks}


class Sampler:
    """Draws, on each rank, a batch and the tasks for which it has labels."""

    def __init__(self, rank, seed=0):
        self.generator = torch.Generator().manual_seed(seed + rank)
        self.rank = rank

    def __call__(self, step):
        x = torch.randn(16, 10, generator=self.generator)
        tasks = ["depth", "labels"] if (step + self.rank) % 4 else ["normals", "labels"]
        return x, {task: x[:, i : i + 4] for i, task in enumerate(tasks)}


def average_gradients(model, world):
    for parameter in model.parameters():
        if parameter.grad is not None:  # CAUSE
            dist.all_reduce(parameter.grad)  # CAUSE
            parameter.grad /= world


def broadcast_parameters(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = MultiTask()
    broadcast_parameters(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    draw = Sampler(rank)
    for step in range(8):
        x, targets = draw(step)
        outputs = model(x, list(targets))
        loss = sum(nn.functional.mse_loss(outputs[t], y) for t, y in targets.items())
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model, world)
        optimizer.step()
    head = model.heads["depth"].weight.detach().clone()
    dist.broadcast(head, 0)
    if rank == 1:
        print("ranks agree:", torch.allclose(head, model.heads["depth"].weight), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
