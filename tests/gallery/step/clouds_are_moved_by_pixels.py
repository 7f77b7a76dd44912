"""Clouds are moved by a field in pixels, and grid_sample takes it for parts of the image.

finding: grid in pixels
"""

import torch
from torch import Tensor, nn


class _Wind(nn.Module):
    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.GELU(), nn.Conv2d(6, 2, 1))
        places = torch.cartesian_prod(torch.arange(height), torch.arange(width)).flip(1)
        self.register_buffer("places", places.view(1, height, width, 2).float())

    def forward(self, now: Tensor, later: Tensor) -> Tensor:
        field = self.layers(torch.cat((now, later), dim=1))
        places = self.places + field.permute(0, 2, 3, 1)
        moved: Tensor = torch.nn.functional.grid_sample(  # cause
            now, places, padding_mode="border", align_corners=True
        )
        return moved


def program() -> object:
    wind = _Wind(12, 20)
    optimizer = torch.optim.AdamW(wind.parameters(), lr=1e-3)
    for _ in range(6):
        now = torch.rand(4, 1, 12, 20)
        later = now.roll(1, dims=3)
        loss = (wind(now, later) - later).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return wind, optimizer
