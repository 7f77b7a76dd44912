"""The balance of experts is computed of their choices, which have no gradient.

finding: no way back
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Mixture(nn.Module):
    """Sends each sample to one expert."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        chances = self.gate(x).softmax(-1)
        best, chosen = chances.max(-1)
        share = F.one_hot(chosen, len(self.experts)).float().mean(0)
        balance = len(self.experts) * (share * share).sum()
        given = torch.stack([each(x) for each in self.experts], 1)
        return given[torch.arange(len(x)), chosen] * best[:, None], balance


def program() -> None:
    mixture, head = Mixture(6, 3), nn.Linear(6, 1)
    optimizer = torch.optim.Adam([*mixture.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(8):
        x = torch.randn(32, 6)
        hidden, balance = mixture(x)
        task = (head(hidden) - x.sum(1, keepdim=True)).square().mean()
        loss = task + 0.01 * balance  # cause
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
