"""A straight-through estimator as it should be, and a scaled step towards another value."""

import torch
from torch import nn


class Quantiser(nn.Module):
    """Whole quarters."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        q = (z * 4).round() / 4
        z = z + (q - z).detach()
        z = z + 0.5 * (z.tanh() - z)
        return torch.add(z, z.sin() - z, alpha=0.1)


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 4), Quantiser(), nn.Linear(4, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        x = torch.randn(16, 8)
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
