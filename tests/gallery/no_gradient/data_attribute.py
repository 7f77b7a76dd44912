"""A recurrent network hands its hidden state on as .data, so the first step's cell learns nothing.

gradient: none
cause: data
parameter: initial
parameter: encode.*
"""

import torch
from torch import Tensor, nn


class Carried(nn.Module):
    """A learned initial state, encoded, and a cell that starts from it."""

    def __init__(self) -> None:
        super().__init__()
        self.initial = nn.Parameter(torch.randn(1, 6))
        self.encode = nn.Linear(6, 6)
        self.cell = nn.GRUCell(4, 6)

    def forward(self, steps: Tensor) -> Tensor:
        state = self.encode(self.initial).expand(steps.shape[1], -1)
        state = state.data  # cause
        for step in steps:
            state = self.cell(step, state)
        return state


def loss(model: nn.Module) -> Tensor:
    """Of one sequence."""
    return model(torch.randn(3, 2, 4)).pow(2).sum()


def program() -> nn.Module:
    """One training step."""
    model = Carried()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
