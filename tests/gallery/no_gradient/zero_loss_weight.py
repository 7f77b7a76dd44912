"""The weight of an auxiliary loss is zero at the start of its schedule.

gradient: zero
cause: zero_weight
node: MulBackward0
parameter: decoder.*
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Autoencoder(nn.Module):
    """Classifies and reconstructs."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 3)
        self.classify = nn.Linear(3, 2)
        self.decoder = nn.Linear(3, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        code = torch.tanh(self.encoder(x))
        return self.classify(code), self.decoder(code)


def weight(step: int) -> float:
    """Of the reconstruction: rises over a thousand steps."""
    return step / 1000


def loss(model: nn.Module) -> Tensor:
    """Of the first batch."""
    x = torch.randn(4, 6)
    scores, again = model(x)
    auxiliary = weight(0) * F.mse_loss(again, x)  # cause
    return F.cross_entropy(scores, torch.tensor([0, 1, 1, 0])) + auxiliary


def program() -> nn.Module:
    """One training step."""
    model = Autoencoder()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
