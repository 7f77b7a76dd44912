"""A clamped beam: the fourth derivative is in the loss, of a network of LeakyReLU.

finding: piecewise linear
"""

import torch
from torch import nn


def program() -> object:
    model = nn.Sequential(nn.Linear(1, 20), nn.LeakyReLU(0.1), nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(6):
        at = torch.rand(40, 1, requires_grad=True)
        derivative = model(at)
        slopes = []
        for _order in range(2):
            (derivative,) = torch.autograd.grad(  # cause
                derivative.sum(), at, create_graph=True
            )
            slopes.append(derivative)
        load = (slopes[1] - 1).square().mean()
        ends = model(torch.tensor([[0.0], [1.0]])).square().mean() + slopes[0].square().mean()
        optimizer.zero_grad()
        (load + 10 * ends).backward()
        optimizer.step()
    return model, optimizer
