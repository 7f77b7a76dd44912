"""Of two losses under one scaler, the second goes backward without its scale.

finding: not scaled
"""

import torch
from torch import nn


def program() -> None:
    first, second = nn.Linear(6, 6), nn.Linear(6, 1)
    of_first = torch.optim.SGD(first.parameters(), lr=0.1)
    of_second = torch.optim.SGD(second.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(6):
        x = torch.randn(16, 6)
        of_first.zero_grad()
        scaler.scale((first(x) - x).square().mean()).backward()
        scaler.step(of_first)
        of_second.zero_grad()
        (second(x) - 1).square().mean().backward()  # cause
        scaler.step(of_second)
        scaler.update()
