"""A function of its own makes each hook, and so keeps the rate that it was given."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def scaled_by(rate: float) -> Callable[[Tensor], Tensor]:
    return lambda grad: grad * rate


def program() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    for name, parameter in model.named_parameters():
        rate = 0.5 if name.startswith("0") else 0.9
        parameter.register_hook(scaled_by(rate))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(torch.randn(16, 4)), torch.randint(0, 3, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
