"""The divergence of a VAE is a sum over the latents, beside a mean over all pixels.

finding: sum beside mean
"""

import torch
from torch import nn
from torch.nn import functional


class _Coder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inwards = nn.Sequential(nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 6))
        self.outwards = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 64))

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.inwards(pixels).chunk(2, dim=1)
        latent = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        return self.outwards(latent), mean, log_variance


def _parts(
    found: torch.Tensor, pixels: torch.Tensor, mean: torch.Tensor, log_variance: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    distance = functional.mse_loss(found, pixels)
    kl = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(dim=1)
    return distance, kl.mean()


def program() -> None:
    coder = _Coder()
    optimizer = torch.optim.Adam(coder.parameters(), lr=0.003)
    for _ in range(8):
        pixels = torch.rand(16, 64)
        found, mean, log_variance = coder(pixels)
        distance, divergence = _parts(found, pixels, mean, log_variance)
        loss = distance + divergence  # cause
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
