"""Returns are summed from the first reward on, so that an action is praised for what was before.

finding: returns forwards
"""

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli

DISCOUNT = 0.95


def discounted(rewards: list[float]) -> Tensor:
    out: list[float] = []
    so_far = 0.0
    for step in range(len(rewards)):
        so_far = so_far * DISCOUNT + rewards[step]  # cause
        out.append(so_far)
    return torch.tensor(out)


def program() -> nn.Module:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(8):
        logs, rewards = [], []
        state = torch.randn(4)
        for _ in range(12):
            choice = Bernoulli(logits=net(state)[0])
            action = choice.sample()
            logs.append(choice.log_prob(action))
            rewards.append(float(action * state[0]))
            state = 0.9 * state + 0.1 * torch.randn(4)
        gains = discounted(rewards)
        gains = gains - gains.mean()
        loss = -(torch.stack(logs) * gains).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net
