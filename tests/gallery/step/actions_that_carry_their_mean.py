"""The log-probability of an action is weighed, and the action is a function of the policy.

finding: scored with gradient
"""

import torch
from torch import nn
from torch.distributions import Normal


def program() -> None:
    policy, spread = nn.Linear(3, 2), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([*policy.parameters(), spread], lr=0.01)
    for _ in range(8):
        states = torch.randn(32, 3)
        choices = Normal(policy(states), spread.exp())
        action = choices.rsample()  # cause
        reward = -(action.detach() - states[:, :2]).square().sum(dim=1)
        advantage = reward - reward.mean()
        loss = -(choices.log_prob(action).sum(dim=1) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
