"""A target is infinite, as a price divided by no sales was.

pattern: infinity in the data
node: MseLossBackward0
op: torch.nn.functional.mse_loss
check_forward: yes
"""

import torch
from torch import nn


def program() -> None:
    """A training step."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    target = torch.tensor([[1.0], [float("inf")], [2.0]])
    loss = nn.functional.mse_loss(model(torch.randn(3, 4)), target)  # cause
    loss.backward()


if __name__ == "__main__":
    program()
