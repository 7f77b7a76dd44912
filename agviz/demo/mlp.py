"""A residual multi-layer perceptron that distinguishes the arms of a spiral."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 # torch's own spelling

from agviz.demo.subject import PaddedNorm, Subject

ARMS = 3
BATCH = 256
WIDTH = 64
BLOCKS = 12


def spiral(step: int) -> tuple[Tensor, Tensor]:
    """Points of shape (batch, 2) on three arms that wind around each other, and their arms."""
    generator = torch.Generator().manual_seed(step)
    arms = torch.randint(ARMS, (BATCH,), generator=generator)
    radius = torch.rand((BATCH,), generator=generator)
    angle = radius * 5 + arms * (2 * torch.pi / ARMS)
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return points + torch.randn((BATCH, 2), generator=generator) * 0.02, arms


class ResidualLinear(nn.Module):
    """Two linear layers, and a way around them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x``, of shape (batch, width)."""
        grown: Tensor = self.up(self.norm(x)).relu()
        shrunk: Tensor = self.down(grown)
        return x + shrunk


class GroupNorm(nn.Module):
    """A norm over groups of eight features."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x``, of shape (batch, width)."""
        groups: Tensor = self.norm(x.unflatten(1, (-1, 8)))
        return groups.flatten(1)


def build(*, plant_nan: bool = False) -> Subject:
    """The perceptron and its spiral."""
    planted = PaddedNorm() if plant_nan else None
    first, second, model = nn.Sequential(), nn.Sequential(), nn.Sequential()
    first.add_module("stem", nn.Linear(2, WIDTH))
    if planted is not None:
        second.add_module("planted", GroupNorm(planted))
    for number in range(BLOCKS):
        half = first if number < BLOCKS // 2 else second
        half.add_module(f"block{number}", ResidualLinear())
    second.add_module("head", nn.Linear(WIDTH, ARMS))
    model.add_module("first", first)
    model.add_module("second", second)
    return Subject(
        title="residual perceptron on a spiral of three arms",
        model=model,
        batches=spiral,
        loss=F.cross_entropy,
        halves=([first], [second]),
        planted=planted,
        steps=300,
        learning_rate=1e-3,
    )
