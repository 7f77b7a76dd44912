"""A backbone that was to be fine-tuned still runs under no_grad.

gradient: none
cause: no_grad
parameter: backbone.*
"""

import torch
from torch import Tensor, nn


class Detector(nn.Module):
    """Convolutions, and a head that regresses a box."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4, 4)

    def forward(self, image: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.backbone(image)  # cause
        return self.head(features.mean((2, 3)))


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return nn.functional.smooth_l1_loss(model(torch.randn(2, 3, 8, 8)), torch.zeros(2, 4))


def program() -> nn.Module:
    """One training step."""
    model = Detector()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
