"""Gradients are cleared for each micro batch; a norm of them is computed where the step is.

finding: thrown away
"""

import torch
from torch import Tensor, nn


def total(parameters: list[nn.Parameter]) -> Tensor:
    return torch.stack([p.grad.pow(2).sum() for p in parameters if p.grad is not None]).sum()


def program() -> None:
    cell, head = nn.RNNCell(5, 8), nn.Linear(8, 2)
    everything = [*cell.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(everything, lr=0.1)
    for window in range(20):
        optimizer.zero_grad(set_to_none=False)  # cause
        x, state = torch.randn(6, 4, 5), torch.zeros(4, 8)
        for piece in x:
            state = cell(piece, state)
        loss = nn.functional.cross_entropy(head(state), (x.sum((0, 2)) > 0).long())
        (loss / 2).backward()
        if window % 2:
            norm = total(everything)
            if torch.isfinite(norm):
                optimizer.step()
