"""The graphs that are measured: two of tiny operations, real models of three kinds."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Graph(NamedTuple):
    """A forward pass that can be run again and again, each time making a fresh graph."""

    title: str
    forward: Callable[[], Tensor]
    """Makes the graph and returns the scalar to differentiate."""
    leaves: Sequence[Tensor]
    parts: Sequence[Callable[[], Tensor]] = ()
    """Stretches of the forward that can be run alone, if it has any."""


def chain(length: int = 20_000) -> Graph:
    """One long chain: all that is done per node, once per node, and next to no arithmetic."""
    leaf = torch.randn(4, requires_grad=True)

    def forward() -> Tensor:
        value = leaf
        for _ in range(length):
            value = value * 1.0001
        return value.sum()

    return Graph(f"chain of {length:,} tiny ops", forward, [leaf])


def wide(width: int = 10_000) -> Graph:
    """Many nodes that are ready at once, so that the queue is long, and one leaf for all."""
    leaf = torch.randn(4, requires_grad=True)

    def forward() -> Tensor:
        return torch.stack([leaf * 1.5 for _ in range(width)]).sum()

    return Graph(f"{width:,} tiny ops side by side", forward, [leaf])


def transformer() -> Graph:
    """An encoder of 6 layers, width 512, on a batch of 8 sequences of 128."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    batch = torch.randn(8, 128, 512)
    graph = _of(model, "transformer, 6 layers, d=512, batch 8x128", lambda: model(batch))
    hidden = torch.randn(8, 128, 512, requires_grad=True)  # what a layer gets from another one
    return graph._replace(parts=[functools.partial(each, hidden) for each in model.layers])


class Residual(nn.Module):
    """Two convolutions with batch norms, added to what came in."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Of images, ``[N, C, H, W]``."""
        return torch.relu(self.body(x) + self.shortcut(x))


def conv_net(batch: int = 8) -> Graph:
    """ResNet-18 as it is used on images of 32x32."""
    widths = [64, 64, 128, 256, 512]
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        *(
            block
            for before, after in itertools.pairwise(widths)
            for block in (
                Residual(before, after, 1 if before == after else 2),
                Residual(after, after, 1),
            )
        ),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    images = torch.randn(batch, 3, 32, 32)
    title = f"residual conv net (ResNet-18, {batch}x3x32x32)"
    return _of(model, title, lambda: model(images))


def larger_conv_net() -> Graph:
    """The same on 32 images: as much work for each backward pass as the transformer has."""
    return conv_net(32)


def recurrent() -> Graph:
    """An LSTM cell of width 256 over 50 steps, batch 16: every step uses the same four leaves."""
    cell = nn.LSTMCell(128, 256)
    steps = torch.randn(50, 16, 128)

    def output() -> Tensor:
        state = torch.zeros(16, 256), torch.zeros(16, 256)
        for step in steps:
            state = cell(step, state)
        return state[0]

    return _of(cell, "LSTM cell, 50 steps, width 256, batch 16", output)


def _of(model: nn.Module, title: str, output: Callable[[], Tensor]) -> Graph:
    return Graph(title, lambda: output().pow(2).mean(), list(model.parameters()))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "chain": chain,
    "wide": wide,
    "transformer": transformer,
    "conv": conv_net,
    "conv32": larger_conv_net,
    "lstm": recurrent,
}
