"""A deque of losses with graphs is bounded by a variable."""

from collections import deque

import torch
from torch import nn


def program() -> None:
    window = 64
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    recent: deque[torch.Tensor] = deque(maxlen=window)
    for _step in range(60):
        x = torch.randn(32, 8)
        loss = (model(x).squeeze(1) - x[:, 0]).square().mean()
        recent.append(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
