"""A posterior is sampled by torch.normal, which has no gradient.

finding: drawn
"""

import torch
from torch import Tensor, nn


def _drawn(middle: Tensor, spread: Tensor) -> Tensor:
    return torch.normal(middle, spread)  # cause


def program() -> None:
    inwards, outwards = nn.Linear(10, 6), nn.Linear(3, 10)
    optimizer = torch.optim.Adam([*inwards.parameters(), *outwards.parameters()], lr=0.003)
    for _ in range(8):
        batch = torch.randn(16, 10)
        middle, log_spread = inwards(batch).chunk(2, dim=1)
        found = outwards(_drawn(middle, log_spread.exp()))
        kl = (0.5 * (middle**2 + (2 * log_spread).exp() - 1) - log_spread).sum(dim=1).mean()
        loss = (found - batch).square().sum(dim=1).mean() + kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
