"""The generator's backward leaves gradients in the critic, whose own backward adds to them.

finding: mixed
"""

import torch
from torch import nn
from torch.nn import functional as F


def program() -> None:
    maker, critic = nn.Linear(3, 6), nn.Linear(6, 1)
    of_maker = torch.optim.Adam(maker.parameters())
    of_critic = torch.optim.Adam(critic.parameters())
    for _ in range(6):
        of_maker.zero_grad()
        F.softplus(-critic(maker(torch.randn(8, 3)))).mean().backward()
        of_maker.step()
        fake = maker(torch.randn(8, 3)).detach()
        loss = F.softplus(critic(fake)).mean() + F.softplus(-critic(torch.randn(8, 6))).mean()
        loss.backward()
        of_critic.step()  # cause
        of_critic.zero_grad()
