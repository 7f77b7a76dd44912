"""A gate is a tensor that requires a gradient, not an nn.Parameter.

finding: unregistered
"""

import torch
from torch import nn


class Gated(nn.Module):
    """A convolution with a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 4, 3)
        self.gate = torch.zeros(4, 1, requires_grad=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.conv(x) * self.gate.sigmoid()).mean((1, 2))


def program() -> None:
    model = Gated()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)  # cause
    for _ in range(5):
        x = torch.randn(4, 2, 9)
        loss = (model(x) - x.mean((1, 2))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
