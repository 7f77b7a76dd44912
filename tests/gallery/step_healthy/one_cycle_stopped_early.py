"""One cycle over 40 epochs, stepped once an epoch, ends early."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=40)
    for epoch in range(40):
        for _batch in range(8):
            x = torch.randn(64, 8)
            loss = (model(x).squeeze(1) - x[:, 0]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        if epoch == 8:  # as good as asked for
            break
