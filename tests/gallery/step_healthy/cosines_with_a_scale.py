"""Cosines are divided by a temperature, multiplied by a trained scale, or there are few classes."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize


def program() -> nn.Module:
    left, right = nn.Linear(8, 6), nn.Linear(8, 6)
    classes, scale = nn.Parameter(torch.randn(5, 6)), nn.Parameter(torch.zeros(()))
    centres = nn.Parameter(torch.randn(32, 6))
    parts = nn.ModuleList([left, right])
    optimizer = torch.optim.Adam([*parts.parameters(), classes, scale, centres], lr=1e-2)
    x, labels, own = torch.randn(32, 8), torch.randint(5, (32,)), torch.arange(32)
    for _ in range(12):
        a, b = normalize(left(x), dim=1), normalize(right(x), dim=1)
        loss = cross_entropy(a @ b.T / 0.1, own)
        loss = loss + cross_entropy(scale.exp() * (b @ a.T), own)
        loss = loss + cross_entropy(a @ normalize(classes, dim=1).T, labels)
        loss = loss + cross_entropy(left(x) @ normalize(centres, dim=1).T, own)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parts
