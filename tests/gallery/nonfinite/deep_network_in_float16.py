"""Forty layers that each double the gradient, in float16.

pattern: exploding gradients over depth
node: MmBackward0
"""

import torch
from torch import Tensor, nn


class Deep(nn.Module):
    """Layers without normalisation, whose activations saturate and whose weights are large."""

    def __init__(self) -> None:
        super().__init__()
        weights = (torch.eye(6) * 2.0 for _ in range(40))
        self.weights = nn.ParameterList(nn.Parameter(w.half()) for w in weights)

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = x @ weight  # cause
        return x


def program() -> None:
    """A training step on what is almost nothing."""
    model = Deep()
    model(torch.zeros(2, 6, dtype=torch.float16)).float().sum().backward()


if __name__ == "__main__":
    program()
