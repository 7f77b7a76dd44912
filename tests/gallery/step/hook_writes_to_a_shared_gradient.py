"""A hook scales the gradient of one branch in place; the sum has given it to the other one, too.

finding: hook writes
"""

import torch
from torch import Tensor, nn


def halve(grad: Tensor) -> None:
    grad *= 0.5  # cause


def program() -> None:
    stem, deep = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*stem.parameters(), *deep.parameters()], lr=0.1)
    for _ in range(3):
        first = stem(torch.randn(8, 4))
        far = deep(first.tanh())
        side = first * 2
        side.register_hook(halve)
        loss = (far + side).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
