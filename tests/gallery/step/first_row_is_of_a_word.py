"""The first row of an embedding is of a real thing, and padding_idx keeps it at zero.

finding: row of zeros
outcome: can't tell
"""

import torch
from torch import nn


class _Shop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.things = nn.Embedding(9, 6, padding_idx=0)  # cause
        self.last = nn.Linear(12, 1)

    def forward(self, bought: torch.Tensor) -> torch.Tensor:
        rows = self.things(bought)
        answer: torch.Tensor = self.last(rows.flatten(1)).squeeze(1)
        return answer


def program() -> None:
    shop = _Shop()
    optimizer = torch.optim.Adam(shop.parameters(), lr=0.01)
    for _ in range(8):
        bought, liked = torch.randint(9, (16, 2)), torch.rand(16).round()
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(shop(bought), liked).backward()
        optimizer.step()
