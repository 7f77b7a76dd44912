"""A GAN: each optimizer holds one half, and the critic gets gradients in both passes."""

import torch
from torch import nn


def program() -> None:
    maker, critic = nn.Linear(3, 6), nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    of_maker = torch.optim.Adam(maker.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    softplus = nn.functional.softplus
    for _ in range(8):
        made = maker(torch.randn(10, 3))
        of_critic.zero_grad()
        loss = softplus(critic(made.detach())).mean() + softplus(-critic(torch.randn(10, 6))).mean()
        loss.backward()
        of_critic.step()
        of_maker.zero_grad()
        softplus(-critic(made)).mean().backward()
        of_maker.step()
