"""Counts of calls are fitted by rates, where the loss takes logarithms of rates.

finding: labels
"""

import torch
from torch import nn
from torch.nn import functional


def program() -> None:
    model = nn.Linear(5, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(5):
        hours = torch.randn(16, 5)
        calls = torch.poisson(hours[:, :1].exp())
        optimizer.zero_grad()
        functional.poisson_nll_loss(torch.exp(model(hours)), calls).backward()  # cause
        optimizer.step()
