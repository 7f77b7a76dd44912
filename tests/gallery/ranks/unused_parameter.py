"""A head of the model does not take part in the loss, and DDP waits for its gradient.

ranks: 2
kind: unused parameter
parameter: module.auxiliary.weight
parameter: module.auxiliary.bias
says: Expected to have finished reduction
ends: error
"""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(nn.Module):
    """A classifier with an auxiliary head."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.classes = nn.Linear(48, 5)
        self.auxiliary = nn.Linear(48, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.trunk(x)
        return self.classes(hidden), self.auxiliary(hidden)


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    torch.manual_seed(0)
    model = DistributedDataParallel(TwoHeads())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(5):
        time.sleep(0.15)  # reads a batch
        x, y, z = torch.randn(8, 24), torch.randint(5, (8,)), torch.randint(2, (8,))
        classes, auxiliary = model(x)  # cause
        loss = nn.functional.cross_entropy(classes, y)
        if healthy:
            loss = loss + 0.1 * nn.functional.cross_entropy(auxiliary, z)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
