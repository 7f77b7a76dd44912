"""The optimizer only clears gradients: the weights are moved by hand, through .data."""

import torch
from torch import nn


def program() -> object:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.data.sub_(parameter.grad, alpha=0.1)
    return model, optimizer
