"""Losses are collected with torch.tensor, which copies their values and nothing else.

gradient: none
cause: new_tensor
parameter: heads.*
"""

import warnings

import torch
from torch import Tensor, nn


class MultiTask(nn.Module):
    """Two heads; how much each counts is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])
        self.weights = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        losses = [nn.functional.mse_loss(head(x)[:, 0], target) for head in self.heads]
        collected = torch.tensor(losses)  # cause
        return (collected * torch.exp(-self.weights) + self.weights).sum()


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Converting a tensor with requires_grad=True")
        return model(torch.randn(6, 4), torch.randn(6))


def program() -> nn.Module:
    """One training step."""
    model = MultiTask()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
