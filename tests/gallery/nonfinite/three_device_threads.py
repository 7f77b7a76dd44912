"""A head on each of three device threads, two of which go wrong independently of each other.

pattern: log of zero
node: LogBackward0
others: 1
"""

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node


def device_policy(node: Node) -> int:
    """Devices in turn, for all that a head consists of."""
    if node.name() in {"LogBackward0", "MulBackward0"}:
        return node._sequence_nr() // 2 % 3
    return -1


class Head(nn.Module):
    """The logarithm of what is scaled."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([scale, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x * self.scale)  # cause


def program() -> None:
    """A training step."""
    heads = [Head(0.5), Head(0.0), Head(0.0)]
    x = torch.rand(2) + 0.5
    logs = [head(x) for head in heads]
    torch.stack(logs).mean().backward()


if __name__ == "__main__":
    program()
