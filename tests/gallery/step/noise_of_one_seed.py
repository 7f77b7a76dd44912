"""A denoiser sets the seed in each step, so that it sees the same noise again and again.

finding: seeded again
"""

import torch
from torch import Tensor, nn


class Denoiser:
    """Predicts the noise that it put in."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 4))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def step(self, x: Tensor, seed: int = 1234) -> None:
        torch.manual_seed(seed)  # cause
        noise, time = torch.randn_like(x), torch.rand(len(x), 1)
        guess = self.net(torch.cat([x + time * noise, time], 1))
        self.optimizer.zero_grad()
        (guess - noise).square().mean().backward()
        self.optimizer.step()


def program() -> None:
    data = torch.randn(80, 4)
    denoiser = Denoiser()
    for batch in data.split(10):
        denoiser.step(batch)
