"""Universal noise is moved by hand with the sign of its gradient."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    noise = torch.zeros(8, requires_grad=True)
    for _ in range(8):
        x, y = torch.randn(12, 8), torch.randint(2, (12,))
        loss = nn.functional.cross_entropy(model(x + noise), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert noise.grad is not None
        noise.data += 0.01 * noise.grad.sign()
        noise.grad = None
