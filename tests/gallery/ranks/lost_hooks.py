"""The model is cast to double and back after DDP has hooked its parameters: the ranks drift apart.

ranks: 2
kind: lost hooks
parameter: module.0.weight
parameter: module.2.bias
ends: well
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@torch.no_grad()
def condition(model: nn.Module, x: Tensor) -> float:
    """How far single precision is off."""
    single = model(x)
    double = model.double()(x.double())
    model.float()  # cause
    return float((single - double).abs().max())


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 2))
    if healthy:
        condition(net, torch.randn(4, 12))
    model = DistributedDataParallel(net)
    if not healthy:
        condition(net, torch.randn(4, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(6):
        x = torch.randn(8, 12)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :2]).backward()
        optimizer.step()
    print(f"{rank}: {sum(p.double().sum().item() for p in model.parameters()):.12f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
