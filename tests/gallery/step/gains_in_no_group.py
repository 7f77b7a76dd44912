"""Groups are chosen by names and dimensions, and gains of norms fall into neither.

finding: not held
"""

import torch
from torch import nn


class Scale(nn.Module):
    """A norm with a gain."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(x, dim=-1) * self.gain


class Net(nn.Module):
    """Two layers, each with its norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.before = nn.Linear(8, 8), Scale(8)
        self.second, self.after = nn.Linear(8, 3), Scale(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.second(self.before(self.first(x)).relu()))


def program() -> None:
    model = Net()
    named = list(model.named_parameters())
    weights = [p for _, p in named if p.dim() > 1]
    others = [p for name, p in named if name.endswith(("bias", "norm"))]
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)  # cause
    for _ in range(8):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 8)), torch.randint(3, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
