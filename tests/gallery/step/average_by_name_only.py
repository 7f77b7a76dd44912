"""The average of weights is a new tensor that only gets a variable's name: the teacher stays.

finding: rebound
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional


def update(teacher: nn.Module, student: nn.Module) -> None:
    slow: Tensor
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow = 0.9 * slow + 0.1 * fast  # noqa: PLW2901  # cause


def program() -> None:
    torch.manual_seed(0)
    student = nn.Linear(4, 4)
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(8):
        x = torch.randn(8, 4)
        optimizer.zero_grad()
        functional.mse_loss(student(x + torch.randn(8, 4) / 10), teacher(x)).backward()
        optimizer.step()
        update(teacher, student)
