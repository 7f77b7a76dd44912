"""Importance of weights: squared gradients of many samples are added up, and nothing is moved."""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(4, 2)
    importance = torch.zeros(2, 4)
    for _ in range(10):
        model.zero_grad()
        model(torch.randn(1, 4)).square().sum().backward()
        assert model.weight.grad is not None
        importance += model.weight.grad.square()
