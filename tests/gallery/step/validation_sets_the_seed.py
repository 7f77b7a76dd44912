"""A validation after each epoch sets the seed, and training goes on with its numbers.

finding: seeded again
"""

import torch
from torch import nn


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)


@torch.no_grad()
def validate(model: nn.Module) -> float:
    seed_everything(7)  # cause
    model.eval()
    x = torch.randn(32, 4)
    error = (model(x) - x.sum(1, keepdim=True)).square().mean()
    model.train()
    return float(error)


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(6):
        for _ in range(3):
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        validate(model)
