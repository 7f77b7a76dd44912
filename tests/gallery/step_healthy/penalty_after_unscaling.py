"""Beside a scaled loss, a penalty is added to what is unscaled; an attack's gradients are cleared.

Another penalty is scaled, and divided afterwards.
"""

import torch
from torch import Tensor, nn


class _Curve(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.knots = nn.Embedding(24, 6)
        self.out = nn.Linear(6, 1, bias=False)

    def forward(self, places: Tensor, shift: Tensor | None = None) -> Tensor:
        knots = self.knots(places)
        found: Tensor = self.out(knots if shift is None else knots + shift)
        return found.squeeze(-1)


def smooth(curve: _Curve, share: float) -> Tensor:
    rough = curve(torch.arange(24)).diff(n=2).square().sum()
    return rough * share


def attacked(scaler: torch.amp.GradScaler) -> None:
    curve = _Curve()
    optimizer = torch.optim.SGD(curve.parameters(), lr=0.05)
    for _ in range(6):
        places = torch.randint(24, (32,))
        shift = torch.zeros(32, 6, requires_grad=True)
        (curve(places, shift) - places.sin()).abs().mean().backward()
        assert shift.grad is not None
        worse = 0.1 * shift.grad.sign()
        optimizer.zero_grad()
        scaler.scale((curve(places, worse) - places.sin()).abs().mean()).backward()
        scaler.step(optimizer)
        scaler.update()


def program() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    attacked(scaler)
    curve = _Curve()
    optimizer = torch.optim.SGD(curve.parameters(), lr=0.05)
    for _ in range(6):
        places = torch.randint(24, (32,))
        optimizer.zero_grad()
        (scaler.scale(smooth(curve, 0.002)) / 4).backward()
        scaler.scale((curve(places) - places.sin()).abs().mean()).backward()
        scaler.unscale_(optimizer)
        smooth(curve, 0.002).backward()
        scaler.step(optimizer)
        scaler.update()
