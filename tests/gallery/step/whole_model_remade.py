"""The model is made again in the loop of folds; the optimizer holds the first one.

finding: replaced
"""

import torch
from torch import nn


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def program() -> None:
    model = make()
    optimizer = torch.optim.Adam(model.parameters())  # cause
    for _ in range(2):
        model = make()
        for _ in range(4):
            loss = nn.functional.cross_entropy(model(torch.randn(9, 4)), torch.randint(2, (9,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
