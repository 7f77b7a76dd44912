"""Actions of rsample go to a critic, and their log-probabilities are an entropy."""

import torch
from torch import nn
from torch.distributions import Normal


def program() -> None:
    policy, critic = nn.Linear(3, 4), nn.Linear(5, 1)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    judging = torch.optim.Adam(critic.parameters(), lr=0.01)
    for _ in range(8):
        states = torch.randn(32, 3)
        mean, log_spread = policy(states).chunk(2, dim=1)
        choices = Normal(mean, log_spread.clamp(-3, 1).exp())
        action = choices.rsample()
        surprise = choices.log_prob(action).sum(dim=1)
        value = critic(torch.cat([states, action], dim=1)).squeeze(1)
        optimizer.zero_grad()
        (0.1 * surprise - value).mean().backward()
        optimizer.step()
        rewards = -(action.detach() - states[:, :2]).square().sum(dim=1)
        judging.zero_grad()
        given = critic(torch.cat([states, action.detach()], dim=1)).squeeze(1)
        (given - rewards).square().mean().backward()
        judging.step()
