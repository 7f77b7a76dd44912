"""Options that are seldom so, and are meant so."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 1))
    policy = nn.Linear(5, 3)
    optimizers = [
        torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.5, 0.9), eps=1e-4),
        torch.optim.SGD(policy.parameters(), lr=0.01, momentum=0.99, maximize=True),
    ]
    for _ in range(12):
        x = torch.randn(16, 5)
        for each in optimizers:
            each.zero_grad()
        (model(x) - x[:, :1]).square().mean().backward()
        actions = torch.distributions.Categorical(logits=policy(x))
        taken = actions.sample()
        (actions.log_prob(taken) * (taken == 0)).mean().backward()
        for each in optimizers:
            each.step()
