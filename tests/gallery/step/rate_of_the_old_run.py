"""The optimizer's state is that of the end of an earlier run, whose rate had come to 0.

finding: rate 0
"""

import torch
from torch import nn


def program() -> None:
    old = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.0, momentum=0.9)
    saved = old.state_dict()
    weight = nn.Parameter(torch.randn(2))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    optimizer.load_state_dict(saved)  # cause
    for _ in range(5):
        optimizer.zero_grad()
        (torch.randn(4, 2) @ weight - 1).square().mean().backward()
        optimizer.step()
