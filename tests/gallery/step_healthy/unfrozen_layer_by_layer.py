"""Layers that are there from the beginning are unfrozen and given to the optimizer one by one."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(*[nn.Linear(5, 5) for _ in range(5)])
    model[:4].requires_grad_(False)
    optimizer = torch.optim.Adam(model[4].parameters())
    for epoch in range(5):
        if epoch:
            layer = model[4 - epoch]
            layer.requires_grad_(True)
            optimizer.add_param_group({"params": layer.parameters()})
        for _ in range(2):
            x = torch.randn(8, 5)
            optimizer.zero_grad()
            (model(x) - x).square().mean().backward()
            optimizer.step()
