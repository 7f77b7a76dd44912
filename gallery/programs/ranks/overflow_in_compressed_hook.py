import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel


def train(rank, world):
    dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 1))
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)  # CAUSE
    for _ in range(2):
        model.zero_grad()
        x = torch.randn(8, 6) * 1000
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    if rank == 0:
        print("finite:", bool(model.module.weight.grad.isfinite().all()), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2,), nprocs=2)
