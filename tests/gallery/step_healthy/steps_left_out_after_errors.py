"""Some batches are given up after backward, for a reason of the program's own."""

import contextlib

import torch
from torch import nn


class LateError(Exception):
    """A batch took too long."""


def turn(model: nn.Module, optimizer: torch.optim.Optimizer, *, is_late: bool) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    if is_late:
        raise LateError
    optimizer.step()


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for late in (0, 1, 1, 2, 1, 3, 1, 2, 1, 2):
        for number in range(late + 1):
            with contextlib.suppress(LateError):
                turn(model, optimizer, is_late=number < late)
