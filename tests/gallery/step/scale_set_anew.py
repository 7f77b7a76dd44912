"""update() is given a scale in each step, under which gradients overflow: no step is taken.

finding: always skipped
"""

import torch
from torch import nn

SCALE = 2.0**125


def program() -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    for _ in range(5):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(16, 8) * 1e3).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update(SCALE)  # cause
