"""The head is replaced by one for other classes after the optimizer was made.

finding: replaced
"""

import torch
from torch import nn


class Net(nn.Module):
    """A body and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def program() -> None:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # cause
    model.head = nn.Linear(16, 3)
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 8)), torch.randint(3, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
