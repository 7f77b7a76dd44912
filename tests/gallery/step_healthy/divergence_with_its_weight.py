"""A divergence beside a mean over pixels has a small weight; beside a sum it has none."""

import torch
from torch import nn
from torch.nn import functional

_WEIGHT = 0.005


def _kl(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    return -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(dim=1).mean()


def program() -> None:
    inwards, outwards = nn.Linear(64, 6), nn.Linear(3, 64)
    optimizer = torch.optim.Adam([*inwards.parameters(), *outwards.parameters()], lr=0.003)
    for turn in range(8):
        pixels = torch.rand(16, 64)
        mean, log_variance = inwards(pixels).chunk(2, dim=1)
        found = outwards(mean + (0.5 * log_variance).exp() * torch.randn_like(mean))
        divergence = _kl(mean, log_variance)
        if turn % 2:
            loss = functional.mse_loss(found, pixels) + _WEIGHT * divergence
        else:
            distance = functional.mse_loss(found, pixels, reduction="sum") / 16
            loss = distance + divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
