"""Two stages of a pipeline, one on each rank, with four microbatches one forward, one backward.

ranks: 2
kind: healthy
ends: well
"""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    halves = [
        nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU()),
        nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)),
    ]
    stage = PipelineStage(halves[rank], rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(halves[rank].parameters(), lr=0.05)
    for _ in range(4):
        x = torch.randn(16, 16)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=x[:, :1].contiguous())
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
