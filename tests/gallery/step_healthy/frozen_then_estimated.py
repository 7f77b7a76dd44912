"""A policy is frozen, and moved by gradients that are estimated."""

import torch
from torch import nn


def program() -> None:
    policy = nn.Linear(4, 2)
    critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=0.01)

    def reward(s: torch.Tensor) -> torch.Tensor:
        return -(policy(s) - s[:, :2]).square().sum(1)

    for _step in range(20):
        loss = -reward(torch.randn(32, 4)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for p in policy.parameters():
        p.requires_grad = False
    for _step in range(40):
        s = torch.randn(32, 4)
        loss = (critic(s).squeeze(1) - reward(s)).square().mean()
        optimizer_c.zero_grad()
        loss.backward()
        optimizer_c.step()
        for p in policy.parameters():
            noise = 0.05 * torch.randn_like(p)
            p.add_(noise)
            up = reward(s).mean()
            p.sub_(2 * noise)
            down = reward(s).mean()
            p.add_(noise)
            p.grad = -(up - down) / 0.005 * noise
        optimizer.step()
