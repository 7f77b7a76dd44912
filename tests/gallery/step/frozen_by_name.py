"""The test for blocks.1 holds of blocks.10 and blocks.11 as well.

finding: frozen by name
"""

import torch
from torch import nn


class Tower(nn.Module):
    """Twelve layers."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(5, 5) for _ in range(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x).tanh()
        return x


def program() -> None:
    tower = Tower()
    for name, parameter in tower.named_parameters():
        if any(part in name for part in ("blocks.0", "blocks.1")):
            parameter.requires_grad_(False)  # cause
    optimizer = torch.optim.Adam((p for p in tower.parameters() if p.requires_grad), lr=1e-3)
    for _ in range(4):
        optimizer.zero_grad()
        (tower(torch.randn(8, 5)) - 1).square().mean().backward()
        optimizer.step()
