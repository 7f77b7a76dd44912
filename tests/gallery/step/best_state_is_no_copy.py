"""The best state is kept by state_dict() alone, and loaded after training.

finding: restores nothing
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    least, best = float("inf"), None
    for epoch in range(10):
        x = torch.randn(16, 4)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < least and epoch < 8:
            least = loss.item()
            best = model.state_dict()  # cause
    if best is not None:
        model.load_state_dict(best)
