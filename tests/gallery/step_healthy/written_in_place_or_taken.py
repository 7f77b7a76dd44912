"""What is called as a statement writes in place, or is a module that does."""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 9), nn.Linear(9, 1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        self.relu(hidden)
        out: Tensor = self.last(hidden)
        return out


def program() -> None:
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    bound = torch.empty(9, 5)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 5)).square().mean().backward()
        with torch.no_grad():
            torch.clamp(model.first.weight, -2, 2, out=bound)
            model.first.weight.clamp_(-2, 2)
        optimizer.step()
