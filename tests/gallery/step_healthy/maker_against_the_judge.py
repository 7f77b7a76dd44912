"""The loss of a generator has the sign opposite to the discriminator."""

import torch
from torch import nn


def program() -> None:
    maker = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
    judge = nn.Sequential(nn.Linear(3, 16), nn.LeakyReLU(), nn.Linear(16, 1))
    of_maker = torch.optim.Adam(maker.parameters(), lr=1e-3)
    of_judge = torch.optim.Adam(judge.parameters(), lr=1e-3)
    for _ in range(8):
        real, fake = torch.randn(16, 3) + 1, maker(torch.randn(16, 2))
        gap = judge(fake.detach()).mean() - judge(real).mean()
        of_judge.zero_grad()
        gap.backward()
        of_judge.step()
        of_maker.zero_grad()
        loss = -judge(fake).mean()
        loss.backward()
        of_maker.step()
