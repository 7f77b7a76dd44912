"""Adam is made in the function that trains one batch: it never gathers moments.

finding: made anew
"""

import torch
from torch import Tensor, nn


def train_batch(model: nn.Module, x: Tensor) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # cause
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    for _ in range(6):
        train_batch(model, torch.randn(8, 6))
