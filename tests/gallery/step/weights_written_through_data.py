"""What a network computes is written into another one's weight through .data.

finding: no gradient
"""

import torch
from torch import nn


class _Hyper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Linear(3, 8)
        self.main = nn.Linear(4, 2, bias=False)

    def forward(self, code: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        self.main.weight.data = self.maker(code).view(2, 4)  # cause
        return self.main(x)


def program() -> None:
    hyper = _Hyper()
    optimizer = torch.optim.Adam(hyper.maker.parameters(), lr=1e-2)
    for _ in range(6):
        x = torch.randn(16, 4)
        loss = (hyper(torch.randn(3), x) - x[:, :2]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
