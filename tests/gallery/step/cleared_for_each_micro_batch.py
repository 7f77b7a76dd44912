"""A helper clears gradients to zeros before each of the micro batches that are to be added up.

finding: thrown away
"""

import torch
from torch import nn


def gradients_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    model.zero_grad(set_to_none=False)  # cause
    (nn.functional.cross_entropy(model(x), y) / 4).backward()


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(8):
        for x, y in zip(torch.randn(4, 8, 6), torch.randint(3, (4, 8)), strict=True):
            gradients_of(model, x, y)
        optimizer.step()
