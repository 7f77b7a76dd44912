"""The mean of what is made is brought to that of the data, beside a loss of each sample."""

import torch
from torch import nn


def program() -> None:
    maker, judge = nn.Linear(3, 4), nn.Linear(4, 1)
    optimizer = torch.optim.Adam([*maker.parameters(), *judge.parameters()], lr=1e-2)
    for step in range(6):
        data, noise = torch.randn(32, 4) + 1, torch.randn(32, 3)
        made = maker(noise)
        if step % 2:
            loss = (made.mean(0) - data.mean(0)).square().mean()
        else:
            scores = judge(made) - judge(data)
            loss = scores.mean().square() + (made - data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
