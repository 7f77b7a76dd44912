"""Only the first rank gathers validation scores, after it has trained for two steps.

ranks: 3
kind: unequal collectives
rank: 0
operation: gather
ends: error
"""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@torch.no_grad()
def validate(model: nn.Module, x: Tensor) -> Tensor:
    """Scores of all ranks."""
    score = model(x).abs().mean().reshape(1)
    scores = [torch.empty(1) for _ in range(dist.get_world_size())]
    dist.all_gather(scores, score)  # cause
    return torch.cat(scores)


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(3, 8, 3), nn.ReLU(), nn.Conv1d(8, 8, 3), nn.ReLU())
    model = DistributedDataParallel(net)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(5):
        time.sleep(0.15)  # reads a batch
        optimizer.zero_grad()
        model(torch.randn(4, 3, 20)).square().mean().backward()
        optimizer.step()
        if step == 1 and (rank == 0 or healthy):
            validate(model.module, torch.randn(4, 3, 20))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
