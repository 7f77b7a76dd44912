"""A small residual convolutional net that distinguishes four kinds of noisy patterns."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 # torch's own spelling

from agviz.demo.subject import PaddedNorm, Subject

SIZE = 16
BATCH = 32
CHANNELS = 16
BLOCKS = 10
NOISE = 0.8


def patterns(step: int) -> tuple[Tensor, Tensor]:
    """Images of shape (batch, 1, size, size) and their kinds: stripes three ways, or a ring."""
    generator = torch.Generator().manual_seed(step)
    kinds = torch.randint(4, (BATCH,), generator=generator)
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    ring = ((x - SIZE / 2) ** 2 + (y - SIZE / 2) ** 2).sqrt()
    clean = torch.stack([x.float(), y.float(), (x + y).float(), ring])[kinds]
    phase = torch.rand((BATCH, 1, 1), generator=generator) * 6.3
    noise = torch.randn((BATCH, SIZE, SIZE), generator=generator) * NOISE
    return ((clean * 1.6 + phase).sin() + noise).unsqueeze(1), kinds


class ResidualConv(nn.Module):
    """Two convolutions with batch normalisation, and a way around them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(CHANNELS)
        self.conv2 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x``, of shape (batch, channels, height, width)."""
        y: Tensor = self.norm1(self.conv1(x)).relu()
        y = self.norm2(self.conv2(y))
        return (x + y).relu()


class PixelNorm(nn.Module):
    """A norm over the channels of each pixel."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x``, of shape (batch, channels, height, width)."""
        pixels: Tensor = self.norm(x.flatten(2).transpose(1, 2))
        return pixels.transpose(1, 2).reshape(x.shape)


def build(*, plant_nan: bool = False) -> Subject:
    """The convolutional net and its patterns."""
    planted = PaddedNorm() if plant_nan else None
    first, second, model = nn.Sequential(), nn.Sequential(), nn.Sequential()
    first.add_module("stem", nn.Conv2d(1, CHANNELS, 3, padding=1))
    if planted is not None:
        second.add_module("planted", PixelNorm(planted))
    for number in range(BLOCKS):
        half = first if number < BLOCKS // 2 else second
        half.add_module(f"block{number}", ResidualConv())
    second.add_module("pool", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    second.add_module("head", nn.Linear(CHANNELS, 4))
    model.add_module("first", first)
    model.add_module("second", second)
    return Subject(
        title="residual convolutional net on noisy stripes and rings",
        model=model,
        batches=patterns,
        loss=F.cross_entropy,
        halves=([first], [second]),
        planted=planted,
        steps=100,
        learning_rate=1e-3,
    )
