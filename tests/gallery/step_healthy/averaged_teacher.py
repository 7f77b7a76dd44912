"""A mean teacher follows the student after each step."""

import copy

import torch
from torch import nn


def program() -> None:
    student = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
    for _ in range(8):
        x = torch.randn(10, 6)
        loss = nn.functional.mse_loss(student(x), teacher(x + 0.1 * torch.randn_like(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
