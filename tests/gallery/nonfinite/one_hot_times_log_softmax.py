"""Cross entropy by hand: one-hot targets times the log of a softmax that has zeros.

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
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.head(x), -1)


def program() -> None:
    """A training step."""
    model = Classifier()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.0, 1.0, -500.0]))
    p = model(torch.randn(5, 4))
    target = nn.functional.one_hot(torch.tensor([0, 1, 1, 0, 1]), 3)
    loss = -(target * p.log()).sum(-1)  # cause
    loss.mean().backward()


if __name__ == "__main__":
    program()
