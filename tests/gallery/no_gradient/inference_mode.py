"""Features are computed in inference mode and cloned out of it, so what made them can't learn.

gradient: none
cause: inference_mode
parameter: features.*
"""

import torch
from torch import Tensor, nn


class Probe(nn.Module):
    """A probe on features."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(5, 7), nn.GELU())
        self.probe = nn.Linear(7, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.inference_mode():
            features = self.features(x)  # cause
        return self.probe(features.clone())


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return nn.functional.cross_entropy(model(torch.randn(4, 5)), torch.tensor([0, 1, 1, 0]))


def program() -> nn.Module:
    """One training step."""
    model = Probe()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
