"""The critic is frozen for the actor's step only, and a stage is frozen with its gradients gone."""

import torch
from torch import nn


def set_requires_grad(module: nn.Module, flag: bool) -> None:
    for parameter in module.parameters():
        parameter.requires_grad = flag
        parameter.grad = parameter.grad if flag else None


def program() -> None:
    stem, actor = nn.Linear(4, 4), nn.Linear(4, 3)
    critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    of_actor = torch.optim.Adam([*stem.parameters(), *actor.parameters()], lr=1e-2)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-2)
    for step in range(10):
        if step == 4:
            set_requires_grad(stem, False)
        set_requires_grad(critic, False)
        of_actor.zero_grad()
        critic(actor(stem(torch.randn(8, 4)))).mean().square().backward()
        of_actor.step()
        set_requires_grad(critic, True)
        of_critic.zero_grad()
        (critic(torch.randn(8, 3)).mean() - 1).square().backward()
        of_critic.step()
