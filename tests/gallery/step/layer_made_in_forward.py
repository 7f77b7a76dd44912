"""A layer is made in forward, so that each pass has another one, and no optimizer any.

finding: made in forward
"""

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """Adds what a layer makes of hidden units to them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        between = nn.Linear(8, 8)  # cause
        hidden = self.first(x).tanh()
        out: Tensor = self.last(hidden + between(hidden))
        return out


def program() -> None:
    torch.manual_seed(0)
    model = Residual()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()
