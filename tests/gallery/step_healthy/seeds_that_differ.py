"""Trainings that begin alike, seeds within fork_rng, states put back, and a seed for each epoch."""

import torch
from torch import nn


def training(rate: float, epochs: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in range(epochs):
        torch.manual_seed(100 + epoch)
        with torch.random.fork_rng():
            torch.manual_seed(3)
            fixed = torch.randn(16, 4)
        state = torch.get_rng_state()
        torch.manual_seed(4)
        fixed = fixed + torch.randn(16, 4)
        torch.set_rng_state(state)
        x = torch.randn(16, 4) + 0.01 * fixed
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()


def program() -> None:
    for rate in (0.01, 0.02, 0.03, 0.04):
        training(rate, 6)
