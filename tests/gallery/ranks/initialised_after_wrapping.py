"""Each rank initialises a layer by its own seed when DDP has sent out the values of rank 0.

ranks: 2
kind: not reduced
says: writes to them after that
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
    torch.manual_seed(0 if healthy else dist.get_rank())
    lstm = nn.LSTM(6, 8, batch_first=True)
    wrapped = DistributedDataParallel(lstm)
    lstm.reset_parameters()  # cause
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    torch.manual_seed(10 + dist.get_rank())
    for _ in range(3):
        optimizer.zero_grad()
        out, _ = wrapped(torch.randn(4, 5, 6))
        out.square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main("healthy" in sys.argv)
