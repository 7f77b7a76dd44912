"""Melodies and their moods are shuffled before each epoch, each by a permutation of its own.

finding: two orders
"""

import torch
from torch import nn
from torch.nn import functional


def program() -> None:
    melodies = torch.randn(40, 6)
    moods = (melodies[:, 0] > 0).long()
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        heard = melodies[torch.randperm(40)]  # cause
        felt = moods[torch.randperm(40)]
        for at in range(0, 40, 10):
            optimizer.zero_grad()
            functional.cross_entropy(model(heard[at : at + 10]), felt[at : at + 10]).backward()
            optimizer.step()
