"""A triplet loss is given anchor, positive and negative."""

import torch
from torch import nn


def program() -> None:
    embed = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(embed.parameters(), lr=1e-3)
    criterion = nn.TripletMarginLoss(margin=0.5)
    for _ in range(8):
        x = torch.randn(16, 5)
        anchor, positive = embed(x), embed(x + 0.1 * torch.randn(16, 5))
        negative = embed(torch.randn(16, 5))
        loss = criterion(anchor, positive, negative)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
