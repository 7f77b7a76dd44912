"""The latents of a variational autoencoder are drawn by sample().

finding: drawn
"""

import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence


class _Coder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        self.decoder = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, width = self.encoder(x).chunk(2, 1)
        posterior = Independent(Normal(mean, width.exp()), 1)
        code = posterior.sample()  # cause
        prior = Independent(Normal(torch.zeros_like(mean), torch.ones_like(mean)), 1)
        error = (self.decoder(code) - x).square().sum(1)
        return (error + kl_divergence(posterior, prior)).mean()


def program() -> None:
    coder = _Coder()
    optimizer = torch.optim.Adam(coder.parameters(), lr=1e-3)
    for _ in range(6):
        loss = coder(torch.randn(16, 8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
