"""A target network is frozen on purpose, and the student's embedding is detached by mistake.

gradient: none
cause: detach
parameter: Student.embed.*
other: Teacher.* none frozen
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Student(nn.Module):
    """Embeds and predicts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6))
        self.predict = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.predict(self.embed(x).detach())  # cause


class Teacher(nn.Module):
    """A moving average of the student's embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6))
        self.requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.embed(x)


def program() -> dict[str, nn.Module]:
    """Three training steps, with weights that follow."""
    student, teacher = Student(), Teacher()
    optimizer = torch.optim.AdamW(student.parameters(), lr=0.01)
    for _ in range(3):
        x = torch.randn(8, 5)
        loss = 1 - F.cosine_similarity(student(x), teacher(x + 0.1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.embed.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
    return {"Student": student, "Teacher": teacher}


if __name__ == "__main__":
    program()
