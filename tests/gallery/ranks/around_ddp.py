"""The module that DDP wraps is called instead of DDP: gradients are never reduced.

ranks: 2
kind: not reduced
says: No rank joined an all-reduce
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 2))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(3):
        optimizer.zero_grad()
        x = torch.randn(8, 12)
        out = model(x) if healthy else model.module(x)  # cause
        nn.functional.mse_loss(out, x[:, :2]).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main("healthy" in sys.argv)
