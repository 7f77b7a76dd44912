"""A teacher that does the same in both modes is in training mode."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.LayerNorm(width))
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
            wanted = teacher(x)
        optimizer.zero_grad()
        functional.kl_div(
            functional.log_softmax(student(x) / 2, 1),
            functional.softmax(wanted / 2, 1),
            reduction="batchmean",
        ).backward()
        optimizer.step()
