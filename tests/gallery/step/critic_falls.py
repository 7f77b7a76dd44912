"""A critic's loss falls without end: neither its weights nor its gradient are held in bounds.

finding: falls
"""

import torch
from torch import nn


def program() -> None:
    critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    generator = nn.Linear(2, 2)
    of_critic = torch.optim.Adam(critic.parameters(), lr=0.05)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-4)
    for step in range(60):
        fake = generator(torch.randn(32, 2))
        loss = critic(fake.detach()).mean() - critic(torch.randn(32, 2) + 4).mean()  # cause
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        if step % 20 == 19:
            of_generator.zero_grad()
            (-critic(fake).mean()).backward()
            of_generator.step()
