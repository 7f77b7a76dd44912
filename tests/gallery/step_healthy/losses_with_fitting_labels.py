"""Rates with log_input=False, and labels of 1 and -1."""

import torch
from torch import nn
from torch.nn import functional


def program() -> None:
    model = nn.Linear(5, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(5):
        hours = torch.randn(16, 5)
        rate, score = model(hours).unbind(1)
        calls = torch.poisson(hours[:, 0].exp())
        sign = (hours[:, 1] > 0).float() * 2 - 1
        optimizer.zero_grad()
        loss = functional.poisson_nll_loss(rate.exp(), calls, log_input=False)
        (loss + functional.soft_margin_loss(score, sign)).backward()
        optimizer.step()
