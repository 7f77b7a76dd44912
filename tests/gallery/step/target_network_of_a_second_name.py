"""The target network is the network itself, under a second name.

finding: one model
"""

import torch
from torch import nn


class _Agent:
    def __init__(self) -> None:
        self.online = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.target = self.online  # cause
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3)

    def learn(self, state: torch.Tensor, reward: torch.Tensor) -> None:
        with torch.no_grad():
            aim = reward + 0.9 * self.target(state.roll(1, 0)).amax(1)
        value = self.online(state)[:, 0]
        loss = (value - aim).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def program() -> None:
    agent = _Agent()
    for _ in range(5):
        agent.learn(torch.randn(8, 4), torch.rand(8))
