"""A hook scales the second of two heads, and joins them in the order in which they came."""

import torch
from torch import nn


def slower(grad: torch.Tensor) -> torch.Tensor:
    first, second = grad.chunk(2, dim=-1)
    return torch.cat([first, 0.1 * second], dim=-1)


def program() -> None:
    project, out = nn.Linear(8, 16), nn.Linear(16, 2)
    optimizer = torch.optim.SGD([*project.parameters(), *out.parameters()], lr=0.1)
    for _ in range(4):
        heads = project(torch.randn(16, 8))
        heads.register_hook(slower)
        loss = nn.functional.cross_entropy(out(heads.tanh()), torch.randint(2, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
