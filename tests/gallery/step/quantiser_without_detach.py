"""A quantiser adds z + (q - z) with its graph, so that the encoder learns of its own term only.

finding: undetached
"""

import torch
from torch import nn


class Quantiser(nn.Module):
    """Levels that are learnt; each number takes the nearest."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.Parameter(torch.linspace(-1, 1, 9))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        nearest = (z.detach().unsqueeze(-1) - self.levels.detach()).abs().argmin(-1)
        return z + (self.levels[nearest] - z)  # cause


def program() -> None:
    encoder, quantiser, decoder = nn.Linear(8, 4), Quantiser(), nn.Linear(4, 8)
    model = nn.Sequential(encoder, quantiser, decoder)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        x = torch.randn(16, 8)
        loss = nn.functional.mse_loss(model(x), x) + 0.01 * encoder(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
