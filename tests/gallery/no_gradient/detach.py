"""A classifier on top of an encoder whose features are detached: the encoder does not learn.

gradient: none
cause: detach
parameter: encoder.*
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Classifier(nn.Module):
    """An encoder and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        features = self.encoder(x).tanh()
        features = features.detach()  # cause
        return self.head(features)


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return F.cross_entropy(model(torch.randn(6, 8)), torch.randint(3, (6,)))


def program() -> nn.Module:
    """One training step."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss(model).backward()
    optimizer.step()
    return model


if __name__ == "__main__":
    program()
