"""A convolutional network with batch norm, in which one channel is constant: eps saves it."""

import torch
from torch import nn


def program() -> None:
    """A training step."""
    first = nn.Conv2d(3, 4, 3)
    model = nn.Sequential(
        first,
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 5),
    )
    with torch.no_grad():
        first.weight[1] = 0
    loss = nn.functional.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.randint(5, (4,)))
    loss.backward()


if __name__ == "__main__":
    program()
