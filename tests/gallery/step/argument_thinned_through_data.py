"""A module writes through .data to what it is given, which has a graph.

finding: hidden write
"""

import torch
from torch import Tensor, nn


class _Thinned(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        keep = (torch.rand(h.shape) < 0.5).float() * 2
        h.data.mul_(keep)  # cause
        return h


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.thinned, self.last = nn.Linear(6, 16), _Thinned(), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.thinned(torch.sigmoid(self.first(x))))
        return out


def program() -> None:
    torch.manual_seed(0)
    net = _Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(6):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        (net(x) - x[:, :2]).square().mean().backward()
        optimizer.step()
