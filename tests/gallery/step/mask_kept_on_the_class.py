"""A custom Function keeps its mask in a global variable; two layers call it.

finding: kept on class
"""

from typing import Any

import torch
from torch import Tensor, nn

KEPT = torch.ones(1)


class _Positive(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        global KEPT  # noqa: PLW0603
        KEPT = (x > 0).float()  # cause
        return x * KEPT

    @staticmethod
    def backward(_ctx: Any, *grads: Any) -> Any:
        return grads[0] * KEPT


def program() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05)
    for _ in range(4):
        x = torch.randn(6, 4)
        loss = (_Positive.apply(second(_Positive.apply(first(x)))) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
