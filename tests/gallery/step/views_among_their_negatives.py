"""Of two views of each cell, the similarities of a view with itself are left in.

finding: with itself
"""

import torch
from torch import nn
from torch.nn import functional


def program() -> nn.Module:
    encoder = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
    cells = torch.randn(10, 6)
    for _ in range(10):
        views = torch.stack([cells, cells + 0.1 * torch.randn_like(cells)], dim=1).flatten(0, 1)
        codes = functional.normalize(encoder(views))
        logits = torch.mm(codes, codes.t()).div(0.2)  # cause
        others = torch.arange(20) ^ 1
        optimizer.zero_grad()
        functional.cross_entropy(logits, others).backward()
        optimizer.step()
    return encoder
