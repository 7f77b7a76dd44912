"""States of padded steps are set to zero where backward does not see it.

finding: hidden write
"""

import torch
from torch import Tensor, nn


class Reader(nn.Module):
    """Of sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, words: Tensor, keep: Tensor) -> Tensor:
        states = self.cell(words)[0]
        states.data.mul_(keep)  # cause
        out: Tensor = self.head(states.mean(1))
        return out


def program() -> None:
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        keep = (torch.rand(12, 7, 1) > 0.3).float()
        optimizer.zero_grad()
        model(torch.randn(12, 7, 4), keep).square().mean().backward()
        optimizer.step()
