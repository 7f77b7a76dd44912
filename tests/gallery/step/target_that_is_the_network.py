"""A target network takes nearly all of the other one at each update.

finding: average
"""

import torch
from torch import nn

TAU = 0.005


def follow(target: nn.Module, network: nn.Module) -> None:
    with torch.no_grad():
        pairs = zip(target.parameters(), network.parameters(), strict=True)
        for old, new in pairs:
            old.copy_(TAU * old + (1 - TAU) * new)


def soften(target: nn.Module, network: nn.Module) -> None:
    for old, new in zip(target.parameters(), network.parameters(), strict=True):
        old.data.copy_(TAU * old.data + (1.0 - TAU) * new.data)  # cause


def program() -> None:
    network, target = nn.Linear(4, 2), nn.Linear(4, 2)
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(6):
        state, after = torch.randn(16, 4), torch.randn(16, 4)
        with torch.no_grad():
            goal = 0.9 * target(after).max(1).values
        optimizer.zero_grad()
        (network(state)[:, 0] - goal).square().mean().backward()
        optimizer.step()
        soften(target, network)
