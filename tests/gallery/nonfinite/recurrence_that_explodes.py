"""A recurrent weight that is too large, over 120 steps: gradients grow until float32 ends.

pattern: exploding gradients over depth
node: MulBackward0
"""

import torch
from torch import Tensor, nn


class Recurrence(nn.Module):
    """A linear recurrence, whose state is kept small by the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.full((3,), 3.0))

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(3)
        for part in x:
            state = state * self.decay + part  # cause
        return state


def program() -> None:
    """A training step."""
    model = Recurrence()
    model(torch.zeros(120, 3)).sum().backward()


if __name__ == "__main__":
    program()
