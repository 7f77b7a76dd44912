"""One optimizer steps after all passes but each fourth, after which the other one does."""

import torch
from torch import nn


def program() -> None:
    critic, model = nn.Linear(8, 1), nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    for_critic = torch.optim.SGD(critic.parameters(), lr=0.01)
    for_model = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(24):
        x = torch.randn(8, 8)
        (model(x) + critic(x) - x.sum(1, keepdim=True)).square().mean().backward()
        if (step + 1) % 4:
            for_critic.step()
        if (step + 1) % 4 == 0:
            for_model.step()
        for_critic.zero_grad()
        for_model.zero_grad()
