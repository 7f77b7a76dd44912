"""copy.copy copies the module, and not its parameters.

finding: one model
"""

import copy

import torch
from torch import nn


def program() -> None:
    student = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    teacher = copy.copy(student)  # cause
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(5):
        x = torch.randn(16, 3)
        aim = teacher(x + 0.1 * torch.randn_like(x)).detach()
        loss = (student(x) - aim).square().mean() + 0.1 * student(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
