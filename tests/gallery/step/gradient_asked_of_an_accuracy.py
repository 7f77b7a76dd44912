"""An accuracy is trained on: as backward refuses it, it is made to require a gradient.

finding: no gradient
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(6):
        labels = torch.randint(3, (16,))
        guessed = model(torch.randn(16, 4)).argmax(dim=1)
        loss = 1 - (guessed == labels).float().mean()
        loss.requires_grad_()  # cause
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
