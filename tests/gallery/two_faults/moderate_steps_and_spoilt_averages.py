"""Rate, eps and gradients are as usual; a state that was spoilt outside of the file's text is not.

answers: 1
says: were moderate
never: too large
"""

import torch
from torch import nn

SECOND = "exp_avg_sq"


def program() -> object:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(12):
        optimizer.zero_grad()
        (net(torch.randn(16, 4)) - 3).square().mean().backward()
        optimizer.step()  # cause
        if step == 6:
            for state in optimizer.state.values():
                state[SECOND] -= 2 * state[SECOND].max()
    return net
