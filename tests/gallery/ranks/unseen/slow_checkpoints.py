"""The first rank writes a checkpoint after each step, which the other ranks wait for.

ranks: 3
kind: slow data
rank: 0
ends: well
"""

import io
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def save(model: nn.Module) -> None:
    """Write to a disk that is far away."""
    torch.save(model.state_dict(), io.BytesIO())
    time.sleep(0.25)  # cause


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.GRU(12, 24, num_layers=2, batch_first=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for _ in range(6):
        optimizer.zero_grad()
        output, _ = model(torch.randn(6, 9, 12))
        output.square().mean().backward()
        optimizer.step()
        if rank == 0 and not healthy:
            save(model.module)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
