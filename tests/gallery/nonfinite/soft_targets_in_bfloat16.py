"""Targets of a teacher, some of them 0, times the log of a softmax in bfloat16.

pattern: log of zero
node: LogBackward0
remedy: log_softmax
"""

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3, dtype=torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).softmax(-1)


def program() -> None:
    """A step of distillation."""
    model = Classifier()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.0, 1.0, -500.0]))
    p = model(torch.randn(5, 4, dtype=torch.bfloat16))
    teacher = torch.tensor([0.25, 0.75, 0.0], dtype=torch.bfloat16)
    loss = -(torch.log(p) * teacher).sum(-1)  # cause
    loss.mean().backward()


if __name__ == "__main__":
    program()
