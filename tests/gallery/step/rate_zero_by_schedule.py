"""The schedule counts epochs from 0 and multiplies by them: the rate stays 0.

finding: rate 0
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: epoch // 10)
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()  # cause
