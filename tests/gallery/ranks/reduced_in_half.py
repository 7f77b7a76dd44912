"""A hook of DDP reduces gradients in float16, in which they overflow.

ranks: 2
kind: nonfinite
says: reduced in float16
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(12, 2))
    model.register_comm_hook(None, fp16_compress_hook)  # cause
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(12):
        x = torch.randn(8, 12) * (1 if healthy else 1e3)
        model.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :2]).backward()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main("healthy" in sys.argv)
