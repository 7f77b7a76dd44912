"""A log-variance is clamped between 5 and -5: it is -5 for all samples.

finding: bounds swapped
"""

import torch
from torch import Tensor, nn


class Estimator(nn.Module):
    """A mean with a variance for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.net(x).unbind(-1)
        return mean, spread.clamp(5, -5)  # cause


def program() -> None:
    model = Estimator()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(8):
        x = torch.randn(16, 3)
        mean, spread = model(x)
        loss = ((mean - x.sum(1)).square() * (-spread).exp() + spread).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
