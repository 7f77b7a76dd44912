"""A batch of one sample has no standard deviation.

pattern: standard deviation of one element
node: DivBackward0
op: Tensor.std
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Advantage(nn.Module):
    """Standardised advantages of a critic."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        value = self.value(x)
        deviation = value.std(0)  # cause
        return (value - value.mean(0)) / (deviation + 1e-8)


def program() -> None:
    """The last, smaller batch of an epoch."""
    model = Advantage()
    model(torch.randn(1, 4)).mean().backward()


if __name__ == "__main__":
    program()
