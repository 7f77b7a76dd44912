"""What a copy of the model has learnt from is never brought back to the model.

finding: no gradient
"""

import copy

import torch
from torch import nn
from torch.nn import functional


def _adapted(model: nn.Module, given: torch.Tensor, wanted: torch.Tensor) -> nn.Module:
    learner = copy.deepcopy(model)  # cause
    inner = torch.optim.SGD(learner.parameters(), lr=0.05)
    for _ in range(2):
        inner.zero_grad()
        functional.mse_loss(learner(given), wanted).backward()
        inner.step()
    inner.zero_grad()
    return learner


def program() -> None:
    model = nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(6):
        optimizer.zero_grad()
        for _ in range(3):
            slope, points = torch.randn(2, 1), torch.randn(12, 2)
            learner = _adapted(model, points[:6], points[:6] @ slope)
            functional.mse_loss(learner(points[6:]), points[6:] @ slope).backward()
        optimizer.step()
