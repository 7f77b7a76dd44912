"""A likelihood in bfloat16, in which 1 - p is 0 as soon as p is close to 1.

pattern: log of zero
node: LogBackward0
"""

import torch
from torch import Tensor, nn


class Detector(nn.Module):
    """The probability that there is something."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.score(x)).squeeze(-1)


def program() -> None:
    """Binary cross-entropy by hand, on negatives."""
    model = Detector().to(torch.bfloat16)
    with torch.no_grad():
        model.score.bias.fill_(7.0)
    p = model(torch.randn(16, 4, dtype=torch.bfloat16))
    loss = -(1 - p).log()  # cause
    loss.mean().backward()


if __name__ == "__main__":
    program()
