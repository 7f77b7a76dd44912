"""What a function makes of the columns is not taken: training sees them as they were.

finding: unused result
"""

import torch
from torch import nn


def whitened(rows: torch.Tensor) -> torch.Tensor:
    """Columns with a mean of 0 and a deviation of 1."""
    centred = rows - rows.mean(dim=0, keepdim=True)
    return centred / rows.std(dim=0, keepdim=True).clamp(min=1e-6)


def program() -> None:
    rows = torch.rand(96, 4) * torch.tensor([1.0, 9.0, 1900.0, 60_000.0])
    target = rows[:, :1] - rows[:, 1:2] / 9
    whitened(rows)  # cause
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        for start in range(0, 96, 32):
            optimizer.zero_grad()
            output = model(rows[start : start + 32])
            nn.functional.mse_loss(output, target[start : start + 32]).backward()
            optimizer.step()
