"""A learned log-variance outside of its clamp: no gradient brings it back.

gradient: zero
cause: dead_activation
node: ClampBackward1
parameter: log_variance
"""

import torch
from torch import Tensor, nn


class Gaussian(nn.Module):
    """Predicts a mean, and learns one variance."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Linear(3, 1)
        self.log_variance = nn.Parameter(torch.tensor([12.0]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log_variance = self.log_variance.clamp(-10.0, 10.0)  # cause
        return self.mean(x), log_variance


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    mean, log_variance = model(torch.randn(8, 3))
    return (log_variance + (mean - 1).square() / log_variance.exp()).mean()


def program() -> nn.Module:
    """One training step."""
    model = Gaussian()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
