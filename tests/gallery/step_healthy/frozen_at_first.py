"""The body is frozen for some steps, and then trained in the group that it has from the start."""

import torch
from torch import nn


class Net(nn.Module):
    """A body and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6).requires_grad_(False)
        self.head = nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.body(x).tanh())
        return found


def program() -> None:
    model = Net()
    optimizer = torch.optim.SGD([*model.head.parameters(), *model.body.parameters()], lr=0.01)
    for step in range(4):
        if step == 100:
            model.body.requires_grad_(True)
        optimizer.zero_grad()
        (model(torch.randn(8, 4)) - 1).square().mean().backward()
        optimizer.step()
