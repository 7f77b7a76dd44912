"""Two branches on two device threads."""

import torch
from torch import nn
from torch.autograd.graph import Node


def device_policy(node: Node) -> int:
    """Devices in turn."""
    return node._sequence_nr() % 2


def program() -> None:
    """A training step."""
    left, right = nn.Linear(4, 3), nn.Linear(4, 3)
    x = torch.randn(5, 4)
    (torch.tanh(left(x)) + torch.sigmoid(right(x))).mean().backward()


if __name__ == "__main__":
    program()
