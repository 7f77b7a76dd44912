"""A net gets a new layer in each stage, with one hook of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


def program() -> None:
    norms: dict[str, float] = {}

    def watch(name: str) -> Callable[[torch.Tensor], None]:
        def note(grad: torch.Tensor) -> None:
            norms[name] = grad.norm().item()

        return note

    layers: list[nn.Linear] = []
    head = nn.Linear(8, 1)
    for stage in range(8):
        layers.append(nn.Linear(8, 8))
        layers[-1].weight.register_hook(watch(f"layer {stage}"))
        optimizer = torch.optim.Adam(
            [p for each in (*layers, head) for p in each.parameters()], lr=1e-2
        )
        for _step in range(3):
            x = torch.randn(32, 8)
            y = x
            for layer in layers:
                y = torch.tanh(layer(y))
            loss = (head(y).squeeze(1) - x[:, 0]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
