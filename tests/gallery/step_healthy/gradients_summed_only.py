"""Gradients of all batches are added up and looked at: nothing is to be trained."""

import torch
from torch import nn


def program() -> object:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(2, (8,)))
        loss.backward()
    return model, optimizer
