"""A flow's log determinant is summed over the samples, too, and added to each one's log density.

finding: whole batch
"""

import torch
from torch import Tensor, nn


class Coupling(nn.Module):
    """One step of the flow."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.chunk(2, dim=1)
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        return torch.cat([b * s.exp() + t, a], dim=1), s.sum()  # cause


def program() -> None:
    layers = nn.ModuleList(Coupling() for _ in range(3))
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3)
    for _ in range(6):
        x, total = torch.randn(32, 4), torch.zeros(())
        for layer in layers:
            x, log_det = layer(x)
            total = total + log_det
        prior = -0.5 * x.square().sum(dim=1)
        loss = -(prior + total).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
