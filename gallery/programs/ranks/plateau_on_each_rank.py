import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh())
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(1)


def data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=generator)
    return TensorDataset(x, x[:, 0] * x[:, 1] + 0.5 * torch.randn(count, generator=generator))


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.mse_loss(model(x), y).item() for x, y in loader]
    model.train()
    return sum(losses) / len(losses)


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    train_set, val_set = data(96, 1), data(32, 2)
    sampler = DistributedSampler(train_set, world, rank)
    loader = DataLoader(train_set, batch_size=12, sampler=sampler)
    val_loader = DataLoader(
        val_set, batch_size=8, sampler=DistributedSampler(val_set, world, rank, shuffle=False)
    )
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.3)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        val_loss = evaluate(model.module, val_loader)
        scheduler.step(val_loss)  # CAUSE
        if rank == 0:
            print(f"epoch {epoch} val {val_loss:.3f}", flush=True)
    rates = [None] * world
    dist.all_gather_object(rates, optimizer.param_groups[0]["lr"])
    if rank == 0:
        print("same rate:", len(set(rates)) == 1, rates, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
