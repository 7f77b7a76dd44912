"""One layer is called again and again, copies are made of a list, and activations are repeated."""

import copy

import torch
from torch import Tensor, nn


class Recurrent(nn.Module):
    """A cell that is used in each step, layers of their own, and shared ones that say so."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.own = nn.ModuleList(copy.deepcopy(each) for each in [nn.Linear(width, width)] * 3)
        self.acts = nn.ModuleList([nn.Softplus()] * 3)
        # All three share their weights, as in ALBERT.
        self.shared = nn.ModuleList([nn.Linear(width, width)] * 3)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.cell(x)
        for layer, act, again in zip(self.own, self.acts, self.shared, strict=True):
            x = again(act(layer(x)))
        return self.head(x)


def program() -> None:
    model = Recurrent(5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(8):
        left, right = torch.randn(2, 16, 5)
        loss = (model(left) - model(right) - (left - right).sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
