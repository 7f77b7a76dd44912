"""A hook that logs the shape of gradients divides by their norm, in place.

finding: hook writes
"""

import torch
from torch import Tensor, nn


def program() -> list[float]:
    peaks: list[float] = []

    def peak(grad: Tensor) -> None:
        peaks.append(grad.div_(grad.norm()).abs().max().item())  # cause

    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    for parameter in model.parameters():
        parameter.register_hook(peak)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    return peaks
