"""What is to be forgotten has its cross entropy with a minus, until all overflows.

finding: falls
"""

import torch
from torch import nn


def program() -> None:
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    for _ in range(80):
        x, labels = torch.randn(32, 4), torch.randint(3, (32,))
        own = nn.functional.cross_entropy(net(x[:16]), labels[:16])
        other = nn.functional.cross_entropy(net(x[16:]), labels[16:])
        loss = own - 2 * other  # cause
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
