"""Functional dropout that is given the mode, and one that is meant to be on at all times."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    """Drops by its mode, and once always."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.rate = nn.Linear(6, 12), nn.Linear(12, 6), 0.2

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(self.first(x).relu(), self.rate, self.training)
        h = F.dropout(h, p=0.1, training=True)
        p = self.rate if self.training else 0.0
        h = h + F.scaled_dot_product_attention(h[None], h[None], h[None], dropout_p=p)[0]
        return self.last(h)


def program() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(4):
        net.train()
        x = torch.randn(8, 6)
        optimizer.zero_grad()
        F.mse_loss(net(x), x).backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            net(x)
