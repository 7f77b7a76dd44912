"""An average of weights adds all of them each time.

finding: average
"""

import torch
from torch import nn


def program() -> None:
    model, smooth = nn.Linear(4, 2), nn.Linear(4, 2)
    smooth.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for kept, now in zip(smooth.parameters(), model.parameters(), strict=True):
                kept.mul_(0.95).add_(now)  # cause
