"""The batch norms of a teacher that nobody puts into evaluation mode go on.

finding: teacher in training
outcome: can't tell
"""

import copy

import torch
from torch import Tensor, nn


class _Distiller(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.student = encoder
        self.teacher = copy.deepcopy(encoder)
        for each in self.teacher.parameters():
            each.requires_grad = False

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.teacher(x)  # cause
        return (self.student(x + 0.1 * torch.randn_like(x)) - wanted).square().mean()


def program() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    both = _Distiller(encoder)
    optimizer = torch.optim.SGD(both.student.parameters(), lr=1e-2)
    for _ in range(8):
        optimizer.zero_grad()
        both(torch.randn(16, 6)).backward()
        optimizer.step()
