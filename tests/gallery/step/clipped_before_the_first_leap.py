"""Gradients are clipped before backward; already the first step blows the recurrence up.

finding: not clipped
"""

import torch
from torch import nn


def update(cell: nn.Module, optimizer: torch.optim.Optimizer, state: torch.Tensor) -> None:
    total = state.new_zeros(())
    for _ in range(12):
        state = state + cell(state)
        total = total + state.square().mean()
    optimizer.zero_grad()
    nn.utils.clip_grad_norm_(cell.parameters(), max_norm=0.5)  # cause
    total.backward()
    optimizer.step()


def program() -> None:
    cell = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.05)
    for _ in range(6):
        update(cell, optimizer, torch.randn(8, 4) * 20)
