"""Pretrained vectors have a group of their own, and are frozen by default.

finding: frozen
"""

import torch
from torch import nn


class Tagger(nn.Module):
    """Classes of words, by their vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding.from_pretrained(torch.randn(20, 4))  # cause
        self.out = nn.Linear(4, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.words(tokens))
        return found


def program() -> None:
    model = Tagger()

    optimizer = torch.optim.Adam(
        [{"params": model.out.parameters()}, {"params": model.words.parameters(), "lr": 1e-4}]
    )
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randint(0, 20, (8,))).square().mean().backward()
        optimizer.step()
