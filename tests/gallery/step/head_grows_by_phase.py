"""A classifier gets a larger head for each phase, beside a copy that distils; the optimizer stays.

finding: replaced
"""

import copy

import torch
from torch import nn


class Net(nn.Module):
    """A body and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))

    def grow(self, more: int) -> None:
        head = nn.Linear(16, self.head.out_features + more)
        with torch.no_grad():
            head.weight[: self.head.out_features] = self.head.weight
        self.head = head


def program() -> nn.Module:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)  # cause
    before = copy.deepcopy(model)
    for phase in range(3):
        if phase:
            before = copy.deepcopy(model).eval()
            model.grow(2)
        for _ in range(20):
            x = torch.randn(16, 8)
            given = model(x)
            with torch.no_grad():
                old = before(x)
            loss = nn.functional.cross_entropy(given, torch.randint(2 + 2 * phase, (16,)))
            loss = loss + 0.1 * (given[:, : old.shape[1]] - old).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return before
