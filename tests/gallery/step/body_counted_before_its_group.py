"""The parameters of the body are counted, and only then given to the optimizer as a group.

finding: not held
"""

import torch
from torch import nn


def groups(model: nn.ModuleDict) -> list[dict[str, object]]:
    body = model["body"].parameters()
    head = model["head"].parameters()
    size = sum(each.numel() for each in body)  # cause
    return [{"params": body, "lr": 1e-3 / size}, {"params": head, "lr": 1e-2}]


def program() -> object:
    model = nn.ModuleDict({"body": nn.Linear(5, 8), "head": nn.Linear(8, 1)})
    optimizer = torch.optim.SGD(groups(model), lr=1e-2)
    for _ in range(6):
        readings = torch.randn(12, 5)
        optimizer.zero_grad()
        model["head"](torch.tanh(model["body"](readings))).square().mean().backward()
        optimizer.step()
    return model, optimizer
