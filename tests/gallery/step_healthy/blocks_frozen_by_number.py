"""Blocks 1, 10 and 11 are frozen by names that end with a dot."""

import torch
from torch import nn


def program() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(12))
            self.head = nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = x + torch.tanh(block(x))
            return self.head(x)

    model = Net()
    frozen = [1, 10, 11]
    for name, p in model.named_parameters():
        if any(name.startswith(f"blocks.{number}.") for number in frozen):
            p.requires_grad = False
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for _step in range(30):
        x = torch.randn(32, 8)
        loss = (model(x).squeeze(1) - x[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
