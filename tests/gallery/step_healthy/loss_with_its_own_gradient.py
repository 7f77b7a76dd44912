"""A Function gives the loss itself, and backward what it computed in the forward: it gets a 1."""

from typing import Any

import torch
from torch import Tensor, nn


class Squared(torch.autograd.Function):
    """The mean of squares."""

    @staticmethod
    def forward(ctx: Any, error: Tensor) -> Tensor:
        ctx.save_for_backward(2 * error / error.numel())
        return error.square().mean()

    @staticmethod
    def backward(ctx: Any, _one: Tensor) -> Tensor:
        return ctx.saved_tensors[0]


def program() -> None:
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(6):
        x = torch.randn(12, 5)
        loss = Squared.apply(model(x) - x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
