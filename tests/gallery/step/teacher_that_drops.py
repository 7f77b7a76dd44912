"""A teacher is in training mode: its dropout makes other targets in each step.

finding: teacher in training
outcome: can't tell
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def program() -> None:
    torch.manual_seed(0)
    teacher, student = _Net(32), _Net(8)
    teacher.requires_grad_(False)
    student.train()
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
    for _ in range(8):
        x = torch.randn(16, 6)
        with torch.no_grad():
            wanted = teacher(x)  # cause
        optimizer.zero_grad()
        functional.kl_div(
            functional.log_softmax(student(x) / 2, 1),
            functional.softmax(wanted / 2, 1),
            reduction="batchmean",
        ).backward()
        optimizer.step()
