"""A log_softmax is over the samples, in a module.

finding: axis
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(
        nn.Linear(5, 9),
        nn.Tanh(),
        nn.Linear(9, 4),
        nn.LogSoftmax(dim=0),  # cause
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        nn.NLLLoss()(model(torch.randn(16, 5)), torch.randint(0, 4, (16,))).backward()
        optimizer.step()
