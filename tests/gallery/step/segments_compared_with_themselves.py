"""Each segment of a recording is among those that it is held against.

finding: with itself
"""

import torch
from torch import Tensor, nn


class Tracks(nn.Module):
    """Draws segments of one track together."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 8))

    def loss(self, segments: Tensor, partner: Tensor) -> Tensor:
        code = self.encoder(segments)
        code = code / code.norm(dim=1, keepdim=True).clamp_min(1e-6)
        gram = torch.einsum("id,jd->ij", code, code) * 8  # cause
        own = gram.gather(1, partner[:, None])[:, 0]
        return (torch.logsumexp(gram, dim=1) - own).mean()


def program() -> nn.Module:
    tracks = Tracks()
    optimizer = torch.optim.Adam(tracks.parameters(), lr=1e-2)
    songs = torch.randn(12, 10)
    partner = torch.arange(24).roll(12)
    for _ in range(12):
        segments = torch.cat([songs + 0.1 * torch.randn(12, 10) for _ in range(2)])
        optimizer.zero_grad()
        tracks.loss(segments, partner).backward()
        optimizer.step()
    return tracks
