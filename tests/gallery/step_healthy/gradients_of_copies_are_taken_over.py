"""What copies of a model learn from is added up, and put where the model's gradients go."""

import copy

import torch
from torch import nn
from torch.nn import functional


def program() -> None:
    model = nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(6):
        total = torch.zeros(())
        optimizer.zero_grad()
        for _ in range(3):
            slope, points = torch.randn(2, 1), torch.randn(12, 2)
            learner = copy.deepcopy(model)
            inner = torch.optim.SGD(learner.parameters(), lr=0.05)
            inner.zero_grad()
            functional.mse_loss(learner(points[:6]), points[:6] @ slope).backward()
            inner.step()
            inner.zero_grad()
            query = functional.mse_loss(learner(points[6:]), points[6:] @ slope)
            query.backward()
            total = total + query.detach()
            for own, other in zip(model.parameters(), learner.parameters(), strict=True):
                assert other.grad is not None
                own.grad = other.grad if own.grad is None else own.grad + other.grad
        optimizer.step()
