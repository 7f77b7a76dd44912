"""Preferences are learnt with a rate of 5e-7, and a summed loss is clipped to 1, as is usual."""

import torch
from torch import nn


def program() -> None:
    policy = nn.Linear(16, 1)
    with torch.no_grad():
        policy.weight.mul_(4)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-7)
    for _ in range(8):
        margin = policy(40 * torch.randn(64, 16)) - policy(40 * torch.randn(64, 16))
        optimizer.zero_grad()
        (-nn.functional.logsigmoid(5 * margin).sum()).backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
