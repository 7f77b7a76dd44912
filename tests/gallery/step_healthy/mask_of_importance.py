"""The gradient of a mask is read as the importance of units; nobody steps it."""

import torch
from torch import nn


def program() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 1)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.b(torch.relu(self.a(x)) * mask)

    model = Net()
    mask = nn.Parameter(torch.ones(16))
    importance = torch.zeros(16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _step in range(60):
        x = torch.randn(32, 8)
        loss = (model(x, mask).squeeze(1) - x[:, 0]).square().mean()
        optimizer.zero_grad()
        mask.grad = torch.zeros(16)
        loss.backward()
        importance += mask.grad.abs()
        optimizer.step()
