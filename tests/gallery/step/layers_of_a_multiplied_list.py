"""The layers of an encoder are a list of one that is multiplied: there is one layer.

finding: one module
"""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """One layer, with what it was given added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.inner(self.norm(x)))


class Encoder(nn.Module):
    """Blocks, and a head."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(6)] * depth)  # cause
        self.head = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def program() -> None:
    model = Encoder(4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
