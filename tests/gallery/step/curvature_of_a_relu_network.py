"""A curve is to be smooth: its second derivative is in the loss, but its network is made of ReLU.

finding: piecewise linear
"""

import torch
from torch import Tensor, nn


def slope(y: Tensor, x: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return found


def bend(model: nn.Module, dose: Tensor) -> Tensor:
    dose.requires_grad_()
    first = slope(model(dose), dose)
    return slope(first, dose)  # cause


def program() -> object:
    model = nn.Sequential(
        nn.Linear(1, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    dose = torch.rand(32, 1)
    effect = dose.square() + 0.1 * torch.randn(32, 1)
    for _ in range(8):
        fit = nn.functional.mse_loss(model(dose), effect)
        loss = fit + 0.05 * bend(model, torch.rand(64, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, optimizer
