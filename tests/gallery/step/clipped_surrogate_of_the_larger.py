"""The larger of both surrogates is taken, so that nothing holds the policy where it was.

finding: clip undone
"""

import torch
from torch import Tensor, nn
from torch.distributions import Normal


class Agent(nn.Module):
    """Steers by one number."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.value = nn.Linear(4, 1), nn.Linear(4, 1)
        self.epsilon = 0.2

    def update(self, states: Tensor, actions: Tensor, before: Tensor, gains: Tensor) -> Tensor:
        after = Normal(self.mean(states), 0.5).log_prob(actions).sum(1)
        change = (after - before).exp()
        near = torch.clip(change, 1 - self.epsilon, 1 + self.epsilon)
        plain, bounded = change * gains, gains * near
        policy = torch.maximum(plain, bounded)  # cause
        policy_loss = -policy.mean()
        value_loss = (self.value(states)[:, 0] - gains).square().mean()
        return policy_loss + 0.5 * value_loss


def program() -> nn.Module:
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)
    for _ in range(4):
        states = torch.randn(32, 4)
        with torch.no_grad():
            choice = Normal(agent.mean(states), 0.5)
            actions = choice.sample()
            before = choice.log_prob(actions).sum(1)
        gains = -(actions[:, 0] - states[:, 0]).square()
        gains = gains - gains.mean()
        for _ in range(3):
            optimizer.zero_grad()
            agent.update(states, actions, before, gains).backward()
            optimizer.step()
    return agent
