"""A roughness penalty goes backward by itself, before the loss that the scaler knows.

finding: not scaled
"""

import torch
from torch import Tensor, nn


class _Curve(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.knots = nn.Embedding(24, 6)
        self.out = nn.Linear(6, 1, bias=False)

    def forward(self, places: Tensor) -> Tensor:
        found: Tensor = self.out(self.knots(places))
        return found.squeeze(-1)


def smooth(curve: _Curve, share: float) -> Tensor:
    rough = curve(torch.arange(24)).diff(n=2).square().sum()
    return rough * share


def program() -> None:
    curve = _Curve()
    optimizer = torch.optim.SGD(curve.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    for _ in range(8):
        places = torch.randint(24, (32,))
        smooth(curve, 0.3).backward()  # cause
        fit = (curve(places) - places.sin()).abs().mean()
        scaler.scale(fit).backward()
        scaler.step(optimizer)
        scaler.update()
        for weight in curve.parameters():
            weight.grad = None
