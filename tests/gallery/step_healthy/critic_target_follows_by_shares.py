"""The copy of a critic that gives targets follows by shares."""

import copy

import torch
from torch import Tensor, nn


class _Agent:
    """Learns values of states from those of the states after them."""

    def __init__(self) -> None:
        self.critic = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
        self.critic_target = copy.deepcopy(self.critic).eval()
        for parameter in self.critic_target.parameters():
            parameter.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.discount = 0.97

    def update(self, step: int, state: Tensor, reward: Tensor, following: Tensor) -> None:
        with torch.no_grad():
            wanted = reward + self.discount * self.critic_target(following)
        loss = nn.functional.mse_loss(self.critic(state), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            pairs = zip(self.critic_target.parameters(), self.critic.parameters(), strict=True)
            for target, own in pairs:
                target.lerp_(own, 0.05)


def program() -> None:
    agent = _Agent()
    for step in range(10):
        state = torch.randn(16, 3)
        agent.update(step, state, state[:, :1], state + 0.1 * torch.randn(16, 3))
