"""What the network looks at is read of the gradient of its input, at the end."""

import torch
from torch import nn


def program() -> None:
    net = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x = torch.randn(16, 10, requires_grad=True)
    y = torch.randint(3, (16,))
    for _ in range(4):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert x.grad is not None
    assert x.grad.abs().mean(0).shape == (10,)
