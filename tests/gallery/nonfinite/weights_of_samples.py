"""backward is called with weights of samples that are divided by their sum, which is 0.

pattern: non-finite gradient given to backward
kind: root
node: SqueezeBackward1
"""

import torch
from torch import nn


def program() -> None:
    """A training step in which every sample was rejected."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    losses = model(torch.randn(3, 4)).squeeze(-1)
    weights = torch.zeros(3)
    losses.backward(weights / weights.sum())  # cause


if __name__ == "__main__":
    program()
