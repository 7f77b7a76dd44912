"""What stands between backward and step raises each time, which ``except`` hides.

finding: never steps
"""

import torch
from torch import nn


def program() -> object:
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    norms = []
    for _ in range(40):
        try:
            optimizer.zero_grad()
            (net(torch.randn(4, 2)) - 1).square().mean().backward()
            norms.append(nn.utils.clip_grad_norm_(net.parameters(), 1.0)[0])
            optimizer.step()
        except IndexError:  # cause
            continue
    return net, optimizer
