"""Sums beside means that are meant: of weights as many as samples, and of samples, divided.

A norm of a weight, and one of each sample, are no norms of a batch.
"""

import torch
import torch.nn.functional as F
from torch import nn


def program() -> None:
    first, last = nn.Linear(6, 16), nn.Linear(16, 4)
    optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=1e-3)
    for _ in range(6):
        x, wanted = torch.randn(16, 6), torch.randint(0, 4, (16,))
        h = first(x).tanh()
        h = h / h.norm(dim=-1, keepdim=True)
        each = F.cross_entropy(last(h), wanted, reduction="none")
        each = each + 1e-3 * first.weight.square().sum() + first.weight.abs().sum(1) * 1e-3
        sparse = h.abs().sum() / len(h) * 0.1
        loss = each.mean() + sparse + 1e-3 * first.weight.norm()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
