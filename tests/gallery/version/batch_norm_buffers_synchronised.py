"""Two forwards of one batch norm in eval mode, and buffers written between them, as DDP does.

error: modified by an inplace operation
node: NativeBatchNormBackward0
saved: running_mean
"""

import torch
from torch import nn


def synchronise(model: nn.Module, other: nn.Module) -> None:
    """Give a model the buffers of another process."""
    for mine, theirs in zip(model.buffers(), other.buffers(), strict=True):
        mine.copy_(theirs)  # cause


def program() -> None:
    """A pair of batches goes through one network."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    first = model(torch.randn(2, 3, 6, 6))
    synchronise(model, other)
    second = model(torch.randn(2, 3, 6, 6))
    (first.mean() - second.mean()).square().backward()


if __name__ == "__main__":
    program()
