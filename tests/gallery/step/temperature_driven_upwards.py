"""The temperature of a policy's entropy is trained by a loss without its minus.

finding: falls
"""

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(0)
    policy = nn.Linear(3, 2)
    log_weight = torch.zeros(1, requires_grad=True)
    by_policy = torch.optim.Adam(policy.parameters(), lr=0.05)
    by_weight = torch.optim.Adam([log_weight], lr=0.3)
    for _ in range(60):
        mean, log_deviation = policy(torch.randn(32, 3)).unbind(1)
        normal = torch.distributions.Normal(mean, log_deviation.exp())
        action = normal.rsample()
        log_prob = normal.log_prob(action)
        loss = (log_weight.exp().detach() * log_prob + action.square()).mean()
        by_policy.zero_grad()
        loss.backward()
        by_policy.step()
        of_weight = (log_weight.exp() * (log_prob - 1.0).detach()).mean()  # cause
        by_weight.zero_grad()
        of_weight.backward()
        by_weight.step()
