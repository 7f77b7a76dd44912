"""The optimizer holds the teacher, the student is trained.

finding: no gradient
"""

import torch
from torch import nn


def program() -> None:
    teacher, student = nn.Linear(6, 3), nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    optimizer = torch.optim.Adam(teacher.parameters(), lr=1e-3)  # cause
    for _ in range(5):
        x = torch.randn(10, 6)
        with torch.no_grad():
            target = teacher(x).softmax(-1)
        loss = nn.functional.kl_div(student(x).log_softmax(-1), target, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
