"""A recurrence of 200 steps that contract: of the gradient of what comes first nothing is left.

gradient: zero
cause: vanished
node: AddmmBackward0
parameter: first.*
"""

import torch
from torch import Tensor, nn


class Rollout(nn.Module):
    """A state that is computed once, and then many steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.step = nn.Linear(16, 16)
        self.last = nn.Linear(16, 1)

    def forward(self, start: Tensor) -> Tensor:
        state: Tensor = self.first(start)
        for _ in range(200):
            state = torch.tanh(self.step(state))  # cause
        return self.last(state)


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return (model(torch.randn(4, 6)) - 1).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Rollout()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
