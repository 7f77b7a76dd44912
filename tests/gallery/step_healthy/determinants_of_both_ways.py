"""Layers of a flow that stretch and that shrink, each with its own log determinant."""

import torch
from torch import Tensor, nn


class _Layer(nn.Module):
    def __init__(self, *, shrinks: bool) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 4))
        self.shrinks = shrinks

    def _shrunk(self, moved: Tensor, wide: Tensor) -> tuple[Tensor, Tensor]:
        return moved * torch.exp(-wide), -wide.sum(dim=1)

    def _stretched(self, moved: Tensor, wide: Tensor) -> tuple[Tensor, Tensor]:
        return moved * wide.exp(), wide.sum(dim=1)

    def forward(self, data: Tensor) -> tuple[Tensor, Tensor]:
        kept, moved = data.chunk(2, dim=1)
        wide, shift = self.maker(kept).chunk(2, dim=1)
        way = self._shrunk if self.shrinks else self._stretched
        moved, log_det = way(moved - shift, wide.tanh())
        return torch.cat([moved, kept], dim=1), log_det


def program() -> None:
    layers = nn.ModuleList(_Layer(shrinks=number > 0) for number in range(2))
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.001)
    for _ in range(8):
        data, log_det = torch.randn(16, 4), torch.zeros(16)
        for layer in layers:
            data, more = layer(data)
            log_det = log_det + more
        loss = -(-0.5 * data.square().sum(dim=1) + log_det).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
