"""The first two and the last two layers are frozen, by a list of their numbers."""

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
    for number, block in enumerate(tower.blocks):
        if number in {0, 1, 10, 11}:
            block.requires_grad_(False)
    for name, parameter in tower.named_parameters():
        if "norm" in name:
            parameter.requires_grad = True
    optimizer = torch.optim.Adam((p for p in tower.parameters() if p.requires_grad), lr=1e-3)
    for _ in range(4):
        optimizer.zero_grad()
        (tower(torch.randn(8, 5)) - 1).square().mean().backward()
        optimizer.step()
