"""Ridge regression: half of a layer's weights is taken away in each ten steps, on purpose."""

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(0)
    model = nn.Linear(30, 1)
    x = torch.randn(40, 30)
    y = x[:, :1] / 50 + torch.randn(40, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=1.5)
    for _ in range(40):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
