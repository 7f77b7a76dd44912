"""The log-probabilities of actions are made one tensor by their values.

finding: values copied
"""

import torch
from torch import nn
from torch.distributions import Categorical


class _Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, state: torch.Tensor) -> Categorical:
        return Categorical(logits=self.layers(state))


def _episode(actor: _Actor) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    chances, spreads, rewards = [], [], []
    for _ in range(6):
        choices = actor(torch.randn(3))
        action = choices.sample()
        chances.append(choices.log_prob(action))
        spreads.append(choices.entropy())
        rewards.append(float(action == 2))
    return chances, spreads, torch.tensor(rewards)


def program() -> None:
    actor = _Actor()
    optimizer = torch.optim.Adam(actor.parameters(), lr=0.01)
    for _ in range(8):
        chances, spreads, rewards = _episode(actor)
        weights = rewards.flip(0).cumsum(0).flip(0)
        logs = torch.tensor(chances)  # cause
        loss = -(logs * (weights - weights.mean())).sum() - 0.01 * torch.stack(spreads).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
