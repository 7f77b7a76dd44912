"""Two branches on two device threads; in the one that is quicker nothing is wrong at first.

pattern: norm at zero
node: SqrtBackward0
"""

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node


def device_policy(node: Node) -> int:
    """What belongs to the square root's branch on device 1, all others on device 0."""
    return int(node.name() in {"SqrtBackward0", "PowBackward0", "SumBackward1"})


class Branches(nn.Module):
    """A quick and a slow way from the same features."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.embed(x)
        quick = torch.sigmoid(y).mean()
        lengths = y.pow(2).sum(-1).sqrt()  # cause
        return quick + lengths.mean()


def program() -> None:
    """A training step with an empty sample."""
    model = Branches()
    x = torch.randn(6, 4)
    x[5] = 0
    model(x).backward()


if __name__ == "__main__":
    program()
