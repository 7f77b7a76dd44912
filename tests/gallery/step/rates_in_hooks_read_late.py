"""Hooks scale the gradients of each part by its rate, but all of them look up the last part.

finding: late binding
"""

import torch
from torch import nn

RATES = {"0": 0.5, "2": 0.1}


def scale_parts(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        part = name.split(".")[0]
        parameter.register_hook(lambda grad: grad * RATES[part])  # noqa: B023  # cause


def program() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    scale_parts(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of = nn.CrossEntropyLoss()
    for _ in range(6):
        loss = loss_of(model(torch.randn(16, 4)), torch.randint(0, 3, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
