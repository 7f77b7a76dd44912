"""Functions are called for what they raise, print or keep, and what they return is not taken."""

import torch
from torch import nn

seen: list[float] = []


def checked(rows: torch.Tensor) -> torch.Tensor:
    """The rows, which have to be finite."""
    if rows.isnan().any():
        raise ValueError("rows with NaN")
    return rows


def noted(loss: torch.Tensor) -> torch.Tensor:
    """The loss, which is kept."""
    seen.append(loss.item())
    return loss


def scaled(rows: torch.Tensor) -> torch.Tensor:
    """The rows, scaled in place."""
    rows /= rows.std()
    return rows


def program() -> None:
    rows = torch.randn(32, 4) * 3
    scaled(rows)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(12):
        checked(rows)
        optimizer.zero_grad()
        loss = model(rows).sub(rows[:, :1]).square().mean()
        noted(loss)
        loss.backward()
        optimizer.step()
