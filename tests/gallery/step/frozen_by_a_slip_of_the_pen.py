"""An embedding is to be frozen, by a name that torch does not know.

finding: no option
"""

import torch
from torch import nn


def program() -> None:
    table, head = nn.Embedding(30, 6), nn.Linear(6, 2)
    table.weight.requires_grads = False  # type: ignore[attr-defined]  # cause
    optimizer = torch.optim.Adam([*table.parameters(), *head.parameters()], lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        head(table(torch.randint(0, 30, (8, 4))).mean(1)).square().mean().backward()
        optimizer.step()
