"""Gradients of four batches are added up before the ranks exchange them.

ranks: 2
kind: healthy
ends: well
"""

import contextlib
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 4)
    )
    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(dist.get_rank())
    for step in range(16):
        is_last = step % 4 == 3
        x, y = torch.randn(8, 32), torch.randint(4, (8,))
        with contextlib.nullcontext() if is_last else model.no_sync():
            (nn.functional.cross_entropy(model(x), y) / 4).backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
