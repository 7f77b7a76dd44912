"""Gradients of two micro-batches are accumulated, the loss divided by their number."""

import torch
from torch import nn


def program() -> None:
    """A training step in two parts."""
    model = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        loss = nn.functional.cross_entropy(model(torch.randn(6, 4)), torch.randint(2, (6,)))
        (loss / 2).backward()
    optimizer.step()


if __name__ == "__main__":
    program()
