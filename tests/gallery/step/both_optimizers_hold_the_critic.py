"""The optimizer of the generator was given the parameters of the critic.

finding: held instead
"""

import torch
from torch import nn


def program() -> None:
    maker, critic = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    of_critic = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
    of_maker = torch.optim.RMSprop(critic.parameters(), lr=1e-3)  # cause
    loss = nn.BCEWithLogitsLoss()
    for _ in range(6):
        made = maker(torch.randn(8, 3))
        of_critic.zero_grad()
        seen = torch.cat([critic(torch.randn(8, 4) + 1), critic(made.detach())])
        loss(seen, torch.tensor([[1.0]] * 8 + [[0.0]] * 8)).backward()
        of_critic.step()
        of_maker.zero_grad()
        loss(critic(made), torch.ones(8, 1)).backward()
        of_maker.step()
