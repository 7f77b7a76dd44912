"""A softmax that is all but certain: its derivative is next to nothing.

cause: faint
node: SoftmaxBackward0
parameter: a.*
"""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 1)
        self.shift = nn.Buffer(torch.tensor([60.0, 0.0, 0.0, 0.0]))

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.softmax(self.a(x) + self.shift, -1)  # cause
        out: Tensor = self.b(weights * x)
        return out


def program() -> nn.Module:
    """One training step."""
    model = Model()
    model(torch.randn(16, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
