"""The second moment is rounded to few numbers, of which the least is below 0.

finding: spoilt
"""

import torch
from torch import nn


def program() -> object:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(12):
        optimizer.zero_grad()
        (net(torch.randn(16, 4)) - 3).square().mean().backward()
        optimizer.step()
        if step >= 4:
            state = optimizer.state[net.weight]
            least = state["exp_avg_sq"].min()
            state["exp_avg_sq"] -= 2 * least  # cause
    return net
