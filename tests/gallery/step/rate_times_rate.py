"""The function given to LambdaLR returns a learning rate, which is multiplied by another one.

finding: rate squared
"""

import torch
from torch import nn

WIDTH, WARM_UP = 64, 20


def rate(step: int) -> float:
    step = max(step, 1)
    return 0.1 * WIDTH**-0.5 * min(step**-0.5, step * WARM_UP**-1.5)


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=rate)  # cause
    for _ in range(40):
        x = torch.randn(32, 8)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
