"""The target network is loaded with its own state in place of that of the network.

finding: loads itself
"""

import copy

import torch
from torch import Tensor, nn


class _Agent:
    def __init__(self) -> None:
        self.network = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
        self.behind = copy.deepcopy(self.network)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)

    def learn(self, step: int, state: Tensor, reward: Tensor, following: Tensor) -> None:
        with torch.no_grad():
            wanted = reward + 0.9 * self.behind(following).amax(1)
        loss = nn.functional.mse_loss(self.network(state)[:, 0], wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if step % 2 == 1:
            self.behind.load_state_dict(self.behind.state_dict())  # cause


def program() -> None:
    agent = _Agent()
    for step in range(8):
        agent.learn(step, torch.randn(16, 3), torch.randn(16), torch.randn(16, 3))
