"""A layer is frozen while its gradients are zeros, which Adam's averages still move.

finding: frozen, moved
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(12):
        if step == 4:
            for parameter in model[0].parameters():
                parameter.requires_grad = False  # cause
        x = torch.randn(16, 4)
        optimizer.zero_grad(set_to_none=False)
        (model(x) - x.prod(1, keepdim=True)).square().mean().backward()
        optimizer.step()
