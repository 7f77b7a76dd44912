"""Plain gradient descent whose rate is that of a fine-tuning by Adam, and smaller still.

finding: too slow
"""

import torch
from torch import nn
from torch.nn import functional


def program() -> None:
    model = nn.Sequential(nn.Linear(9, 16), nn.GELU(), nn.Linear(16, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-6)  # cause
    for _ in range(20):
        signals = torch.randn(30, 9)
        loss = functional.cross_entropy(model(signals), signals[:, :5].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
