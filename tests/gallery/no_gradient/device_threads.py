"""Two branches on two devices, one of them cut while it moves over.

gradient: none
cause: detach
parameter: second.*
"""

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node


class Branches(nn.Module):
    """Two branches that meet."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        self.second = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        self.join = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.first(x), self.second(x)
        moved = other.detach().to(one.device)  # cause
        return self.join(torch.cat([one, moved], -1))


def device_policy(node: Node) -> int:
    """Two device threads, by the kind of node."""
    return len(node.name()) % 2


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(5, 4)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Branches()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
