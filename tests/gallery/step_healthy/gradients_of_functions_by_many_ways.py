"""Gradients of Functions come from helpers, by places, or are left out on purpose."""

from typing import Any

import torch
from torch import Tensor, nn


def _chained(slope: Tensor, upstream: Tensor) -> Tensor:
    return slope * upstream


class _Ways(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, kept: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale, kept)
        return x * scale + shift + 0 * kept

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        x, scale, kept = ctx.saved_tensors
        by_x = torch.zeros_like(x)
        inside = x.abs() < 100
        by_x[inside] = (_chained(scale, grad_out))[inside]
        by_scale = x.clone()
        by_scale *= grad_out
        parts = [by_scale.sum().reshape(1)]
        by_shift = torch.empty_like(grad_out)
        torch.mul(grad_out, 1.0, out=by_shift)
        nothing = kept.new_zeros(kept.shape)
        return by_x, parts[0], by_shift.sum().reshape(1), nothing


def program() -> None:
    layer = nn.Linear(4, 4)
    scale, shift, kept = (nn.Parameter(torch.full((1,), one)) for one in (1.0, 0.1, 0.5))
    optimizer = torch.optim.SGD([*layer.parameters(), scale, shift, kept], lr=1e-2)
    for _ in range(6):
        x = torch.randn(8, 4)
        optimizer.zero_grad()
        apply: Any = _Ways.apply
        (apply(layer(x), scale, shift, kept) - x).square().mean().backward()
        optimizer.step()
