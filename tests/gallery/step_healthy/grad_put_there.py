"""grad() gives the gradients back, and the program puts them into .grad."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for _ in range(4):
        loss = (model(torch.randn(8, 4)) - 1).square().mean()
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = gradient
        optimizer.step()
