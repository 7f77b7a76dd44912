"""Twelve training steps that people have, as graphs and as time: what pictures are measured by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from screenshots.models import GPT, ResNet50

if TYPE_CHECKING:
    from collections.abc import Callable


class Step(NamedTuple):
    """A loss, and the model whose parameters it comes from."""

    loss: Tensor
    model: nn.Module


class Experts(nn.Module):
    """A mixture of eight experts, two for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 8)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(8)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Transform ``tokens``, of shape (tokens, 16)."""
        weights, chosen = self.router(tokens).softmax(-1).topk(2)
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, slots = torch.where(chosen == number)
            weighted = expert(tokens[rows]) * weights[rows, slots, None]
            mixed = mixed.index_add(0, rows, weighted)
        return mixed


class UNet(nn.Module):
    """Three levels down, three up, each joined to its opposite."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 8, 16, 32)
        self.down = nn.ModuleList(map(self._block, sizes, sizes[1:]))
        self.middle = self._block(32, 32)
        self.up = nn.ModuleList(map(self._block, (64, 32, 16), (16, 8, 8)))
        self.head = nn.Conv2d(8, 1, 1)

    @staticmethod
    def _block(before: int, after: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """A map of one channel for images of shape (batch, 3, height, width)."""
        kept = []
        for block in self.down:
            kept.append(block(x))
            x = nn.functional.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for block in self.up:
            x = nn.functional.interpolate(x, scale_factor=2)
            x = block(torch.cat([x, kept.pop()], 1))
        mapped: Tensor = self.head(x)
        return mapped


class Checkpointed(nn.Module):
    """Four blocks that are computed again in backward, two of them in a backward of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x``, of shape (batch, 16)."""
        for number, block in enumerate(self.blocks):
            x = x + checkpoint(block, x, use_reentrant=number % 2 == 0)
        return x


def mlp() -> Step:
    """Three layers."""
    model = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    targets = torch.randint(10, (32,))
    return Step(nn.functional.cross_entropy(model(torch.randn(32, 64)), targets), model)


def resnet() -> Step:
    """16 bottlenecks in four stages."""
    model = ResNet50()
    logits = model(torch.randn(4, 3, 64, 64))
    return Step(nn.functional.cross_entropy(logits, torch.arange(4)), model)


def gpt() -> Step:
    """Twelve equal layers."""
    model = GPT(12)
    return Step(model(torch.randint(50, (2, 17))), model)


class Unrolled(nn.Module):
    """An LSTM cell, 200 steps in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(16, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, steps: Tensor) -> Tensor:
        """The output after ``steps``, of shape (steps, batch, 16)."""
        state = torch.zeros(2, 32), torch.zeros(2, 32)
        for step in steps:
            state = self.cell(step, state)
        last: Tensor = self.head(state[0])
        return last


def lstm() -> Step:
    """The same thing 200 times."""
    model = Unrolled()
    return Step(model(torch.randn(200, 2, 16)).square().mean(), model)


def gan() -> Step:
    """A critic with a gradient penalty, of which the gradient is a part of the loss."""
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
    critic = nn.Sequential(model, nn.Linear(32, 1))
    real, fake = torch.randn(16, 8), torch.randn(16, 8)
    mixed = (real + torch.rand(16, 1) * (fake - real)).requires_grad_()
    (gradient,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    penalty = (gradient.norm(dim=1) - 1).square().mean()
    return Step(critic(fake).mean() - critic(real).mean() + 10 * penalty, critic)


def experts() -> Step:
    """A mixture of experts."""
    model = Experts()
    return Step(model(torch.randn(32, 16)).square().mean(), model)


def unet() -> Step:
    """A U-Net."""
    model = UNet()
    return Step(model(torch.randn(2, 3, 32, 32)).square().mean(), model)


def checkpointed() -> Step:
    """Checkpoints of both kinds."""
    model = Checkpointed()
    return Step(model(torch.randn(8, 16, requires_grad=True)).square().mean(), model)


def compiled() -> Step:
    """A model behind ``torch.compile``."""
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.LayerNorm(16))
    model.compile(backend="aot_eager")
    whole = nn.Sequential(model, nn.Linear(16, 4))
    return Step(whole(torch.randn(8, 16)).square().mean(), whole)


def chain() -> Step:
    """100,000 nodes in a row."""
    scale = nn.Parameter(torch.ones(()))
    value = scale * 1.0
    for _ in range(99_997):
        value = value * 1.0
    return Step(value.sum(), nn.ParameterList([scale]))


def wide() -> Step:
    """50,000 nodes beside each other."""
    scales = nn.ParameterList([nn.Parameter(torch.ones(())) for _ in range(20)])
    parts = [scales[number % 20] * 1.0 for number in range(50_000)]
    return Step(torch.stack(parts).sum(), scales)


STEPS: dict[str, Callable[[], Step]] = {
    "mlp": mlp,
    "resnet-50": resnet,
    "gpt-12-layers": gpt,
    "lstm-200-steps": lstm,
    "gan-with-penalty": gan,
    "experts": experts,
    "u-net": unet,
    "checkpointed": checkpointed,
    "compiled": compiled,
    "chain-100000": chain,
    "wide-50000": wide,
}
