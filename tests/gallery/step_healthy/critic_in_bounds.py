"""A critic of clipped weights, whose loss is below zero and falls for a while."""

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    of_generator = torch.optim.RMSprop(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.RMSprop(critic.parameters(), lr=5e-3)
    for step in range(60):
        real = torch.randn(64, 2) + 2
        fake = generator(torch.randn(64, 4))
        if step % 6:
            loss = critic(fake.detach()).mean() - critic(real).mean()
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
            with torch.no_grad():
                for p in critic.parameters():
                    p.clamp_(-0.1, 0.1)
        else:
            loss = -critic(fake).mean()
            of_generator.zero_grad()
            loss.backward()
            of_generator.step()
