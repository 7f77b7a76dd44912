"""A policy draws its actions by sample(), weighs log_prob, and is kept near another by its KL."""

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence


def program() -> None:
    policy, critic = nn.Linear(4, 2), nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=1e-3)
    for _ in range(6):
        state = torch.randn(16, 4)
        mean, width = policy(state).unbind(1)
        chosen = Normal(mean, width.exp())
        action = chosen.sample()
        value = critic(torch.cat([state, action[:, None]], 1))[:, 0]
        reward = -action.square()
        gain = chosen.log_prob(action) * (reward - value).detach()
        near = kl_divergence(chosen, Normal(torch.zeros_like(mean), 1.0))
        loss = (0.1 * near - gain + (value - reward).square()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
