"""A layer of a flow shrinks by exp, and its log determinant says that it stretches.

finding: determinant
"""

import torch
from torch import Tensor, nn


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 4))

    def inwards(self, data: Tensor) -> tuple[Tensor, Tensor]:
        kept, moved = data.chunk(2, dim=1)
        wide, shift = self.maker(kept).chunk(2, dim=1)
        moved = (moved - shift) * torch.exp(-wide)
        return torch.cat([moved, kept], dim=1), wide.sum(dim=1)  # cause


def program() -> None:
    layers = nn.ModuleList(_Layer() for _ in range(2))
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.001)
    for _ in range(8):
        data, log_det = torch.randn(16, 4), torch.zeros(16)
        for layer in layers:
            data, more = layer.inwards(data)  # type: ignore[operator]
            log_det = log_det + more
        loss = -(-0.5 * data.square().sum(dim=1) + log_det).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
