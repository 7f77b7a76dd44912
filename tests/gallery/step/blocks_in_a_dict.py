"""The branches are in a plain dict: parameters() does not give them.

finding: unregistered
"""

import torch
from torch import nn


class Branches(nn.Module):
    """A module with branches."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = {name: nn.Linear(5, 5) for name in ("left", "right")}
        self.out = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(sum(branch(x).tanh() for branch in self.branches.values()))


def program() -> None:
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # cause
    for _ in range(5):
        x = torch.randn(12, 5)
        loss = (model(x) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
