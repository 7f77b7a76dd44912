"""Of what a recurrent layer gives that takes steps first, the last sample is taken.

finding: axis
"""

import torch
from torch import Tensor, nn


class _Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.GRU(3, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.cells(x)[0][:, -1])  # cause
        return found


def program() -> None:
    model = _Sums()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(8):
        x = torch.randn(16, 5, 3)
        loss = nn.functional.mse_loss(model(x), x.sum((1, 2))[:, None])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
