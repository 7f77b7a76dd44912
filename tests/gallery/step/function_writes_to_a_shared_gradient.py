"""A custom Function zeroes parts of the gradient it is given, which a sum gave to a skip as well.

finding: hook writes
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Binarize(torch.autograd.Function):
    """Signs, with a straight-through gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        grad_input = grad_output
        grad_input[x.abs() > 1] = 0  # cause
        return grad_input


class Block(nn.Module):
    """Signs beside what they are of."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x))
        return Binarize.apply(2 * h) + h


def program() -> None:
    net = nn.Sequential(
        nn.Conv1d(1, 4, 9, stride=4), Block(), Block(), nn.Flatten(), nn.Linear(24, 3)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(6):
        loss = F.cross_entropy(net(torch.randn(16, 1, 29)), torch.randint(0, 3, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
