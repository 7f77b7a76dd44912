"""The logarithm of a probability that softmax rounded to 0.

pattern: log of zero
node: LogBackward0
"""

import torch
from torch import Tensor, nn


class Policy(nn.Module):
    """Probabilities of actions."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.head(x) * 100, -1)


def program() -> None:
    """A step of policy gradient, at an action that is never taken."""
    model = Policy()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.0, 5.0, 0.0]))
    taken = model(torch.randn(5, 4) * 0.1)[:, 0]
    loss = -taken.log()  # cause
    loss.mean().backward()


if __name__ == "__main__":
    program()
