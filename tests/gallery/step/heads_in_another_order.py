"""A hook on the heads of attention gives their gradients back with the two heads exchanged.

finding: reordered
"""

import torch
from torch import nn


class Attention(nn.Module):
    """Two heads, side by side in the last dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.project(x)
        heads.register_hook(self.exchange)
        first, second = heads.chunk(2, dim=-1)
        found: torch.Tensor = self.out(torch.cat([first.tanh(), second.sigmoid()], dim=-1))
        return found

    def exchange(self, grad: torch.Tensor) -> torch.Tensor:
        first, second = grad.chunk(2, dim=-1)
        return torch.cat([second, first], dim=-1)  # cause


def program() -> None:
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(2, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
