"""What makes data noisy draws noise where it is given none, and gives back what it has drawn."""

import torch
from torch import nn


def _blur(
    clean: torch.Tensor, share: torch.Tensor, noise: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    if noise is None:
        noise = torch.randn_like(clean)
    return share.sqrt() * clean + (1 - share).sqrt() * noise, noise


def _spoilt(clean: torch.Tensor) -> torch.Tensor:
    noise = torch.randn_like(clean)
    return clean + 0.1 * noise


def program() -> None:
    network = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    for turn in range(8):
        clean, share = _spoilt(torch.randn(16, 3)), torch.rand(16, 1)
        if turn % 2:
            noise = torch.randn_like(clean)
            blurred, _ = _blur(clean, share, noise)
        else:
            blurred, noise = _blur(clean, share)
        found = network(torch.cat([blurred, share], dim=1))
        optimizer.zero_grad()
        nn.functional.mse_loss(found, noise).backward()
        optimizer.step()
