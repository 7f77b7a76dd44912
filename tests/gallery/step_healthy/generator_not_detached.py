"""The critic's pass leads into the generator, whose gradients of it are cleared."""

import torch
from torch import nn


def program() -> None:
    maker = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    critic = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    of_maker = torch.optim.Adam(maker.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    soft = nn.functional.softplus
    for _ in range(8):
        for optimizer, sign in ((of_critic, 1), (of_critic, 1), (of_maker, -1)):
            optimizer.zero_grad()
            made = critic(maker(torch.randn(8, 4)))
            loss = soft(sign * made).mean()
            if sign == 1:
                loss = loss + soft(-critic(torch.randn(8, 2))).mean()
            loss.backward()
            optimizer.step()
