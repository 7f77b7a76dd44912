"""Returns are summed from the end on, in several ways; a neuron leaks, and a mean fades."""

import torch
from torch import Tensor, nn
from torch.distributions import Categorical


def from_the_end(rewards: list[float]) -> Tensor:
    found: list[float] = []
    total = 0.0
    for reward in rewards[::-1]:
        total = reward + 0.9 * total
        found.insert(0, total)
    return torch.tensor(found)


def turned_round(rewards: list[float]) -> Tensor:
    found: list[float] = []
    total = 0.0
    for reward in reversed(rewards):
        total = reward + 0.9 * total
        found.append(total)
    found.reverse()
    return torch.tensor(found)


def flipped_before(rewards: list[float]) -> Tensor:
    found: list[Tensor] = []
    total = torch.zeros(())
    backwards = torch.tensor(rewards).flip(0)
    for reward in backwards:
        total = reward + 0.9 * total
        found.append(total)
    return torch.stack(found).flip(0)


def leaky(currents: Tensor) -> Tensor:
    potential, seen = torch.zeros(3), []
    for current in currents:
        potential = current + 0.8 * potential
        seen.append(potential)
    return torch.stack(seen)


def program() -> nn.Module:
    net = nn.Linear(5, 3)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    average, averages = 0.0, []
    for _ in range(8):
        states = torch.randn(10, 5)
        choice = Categorical(logits=leaky(net(states)))
        actions = choice.sample()
        rewards = (actions == states[:, 0].gt(0)).float().tolist()
        average = sum(rewards) + 0.5 * average
        averages.append(average)
        gains = from_the_end(rewards) + turned_round(rewards) + flipped_before(rewards)
        loss = -(choice.log_prob(actions) * (gains - gains.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net
