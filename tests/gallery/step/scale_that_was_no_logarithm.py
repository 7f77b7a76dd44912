"""A scale is kept as its logarithm, and begins as if it were not: one step throws all away.

finding: stuck
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Matching(nn.Module):
    """How well each song fits to each listener."""

    def __init__(self) -> None:
        super().__init__()
        self.songs, self.listeners = nn.Linear(6, 4), nn.Linear(9, 4)
        self.sharpness = nn.Parameter(torch.tensor(20.0))

    def forward(self, songs: Tensor, listeners: Tensor) -> Tensor:
        fit = torch.tanh(self.songs(songs)) @ torch.tanh(self.listeners(listeners)).T
        return fit * torch.exp(self.sharpness)  # cause


def program() -> None:
    torch.manual_seed(3)
    model = Matching()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(14):
        fit = model(torch.randn(12, 6), torch.randn(12, 9))
        loss = functional.cross_entropy(fit, torch.arange(12))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
