"""Scores go through numpy and come back without the graph that made them.

gradient: none
cause: left_torch
parameter: score.*
"""

import numpy as np
import torch
from torch import Tensor, nn


class Weighted(nn.Module):
    """A weighted mean, weights made in numpy."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(3, 1)
        self.value = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.score(x).detach().numpy()  # cause
        weights = torch.from_numpy(np.exp(scores) / np.exp(scores).sum())
        return (self.value(x) * weights).sum(0)


def loss(model: nn.Module) -> Tensor:
    """Of one bag of samples."""
    return nn.functional.mse_loss(model(torch.randn(7, 3)), torch.zeros(2))


def program() -> nn.Module:
    """One training step."""
    model = Weighted()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
