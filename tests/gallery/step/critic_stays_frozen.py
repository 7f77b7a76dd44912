"""A function freezes the critic for the other's step, and nobody asks it to unfreeze it.

finding: no gradient
"""

import torch
from torch import nn


def set_requires_grad(module: nn.Module, flag: bool) -> None:
    for parameter in module.parameters():
        parameter.requires_grad = flag


def program() -> None:
    actor, critic = nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    scale = torch.zeros((), requires_grad=True)
    of_actor = torch.optim.Adam(actor.parameters(), lr=1e-2)
    of_critic = torch.optim.Adam([*critic.parameters(), scale], lr=1e-2)
    for _ in range(6):
        set_requires_grad(critic, False)  # cause
        of_actor.zero_grad()
        critic(actor(torch.randn(8, 4))).mean().backward()
        of_actor.step()
        of_critic.zero_grad()
        (critic(torch.randn(8, 3)).mean() - 1 + scale).square().backward()
        of_critic.step()
