"""Noise of actions is multiplied by log_std itself.

finding: log for scale
"""

import torch
from torch import nn


def program() -> None:
    policy = nn.Linear(4, 2)
    log_std = nn.Parameter(torch.full((2,), -0.5))
    optimizer = torch.optim.Adam([*policy.parameters(), log_std], lr=1e-2)
    for _ in range(8):
        state = torch.randn(16, 4)
        noise = torch.randn(16, 2)
        action = policy(state) + log_std * noise  # cause
        loss = (action - state[:, :2]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
