"""What makes data noisy is not given the noise that the network is to predict, and draws some.

finding: drawn apart
"""

import torch
from torch import nn


class _Process:
    def __init__(self) -> None:
        self.kept = torch.linspace(0.99, 0.02, 50)

    def blur(
        self, clean: torch.Tensor, at: torch.Tensor, eps: torch.Tensor | None = None
    ) -> torch.Tensor:
        if eps is None:
            eps = torch.randn_like(clean)
        kept = self.kept[at].unsqueeze(1)
        return kept.sqrt() * clean + (1 - kept).sqrt() * eps


def program() -> None:
    process = _Process()
    network = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    for _ in range(8):
        clean, at = torch.randn(16, 3), torch.randint(50, (16,))
        eps = torch.randn_like(clean)
        blurred = process.blur(clean, at)  # cause
        found = network(torch.cat([blurred, at[:, None] / 50], dim=1))
        optimizer.zero_grad()
        nn.functional.mse_loss(found, eps).backward()
        optimizer.step()
