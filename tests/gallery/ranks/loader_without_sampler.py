"""The loader shuffles by the same seed on both ranks, and no sampler gives each its share.

ranks: 2
kind: data
rank: 1
options: --check-forward
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(32, 12))
    if healthy:
        torch.manual_seed(1 + dist.get_rank())
    for (x,) in DataLoader(data, batch_size=8, shuffle=True):  # cause
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :2]).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main("healthy" in sys.argv)
