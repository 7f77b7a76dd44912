"""The data of one rank come from a slow disk; the others wait for it in every backward pass.

ranks: 2
kind: slow data
rank: 1
ends: well
"""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Waves(Dataset[tuple[Tensor, Tensor]]):
    """Sines, of which the frequency is to be told."""

    def __init__(self, is_slow: bool) -> None:
        self.is_slow = is_slow

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.is_slow:
            time.sleep(0.03)  # cause
        label = index % 4
        noise = torch.randn(32, generator=torch.Generator().manual_seed(index))
        return torch.sin(torch.arange(32) * (label + 1) / 4) + 0.1 * noise, torch.tensor(label)


def main(healthy: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    waves = Waves(is_slow=rank == 1 and not healthy)
    loader = DataLoader(waves, batch_size=8, sampler=DistributedSampler(waves))
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(healthy="healthy" in sys.argv)
