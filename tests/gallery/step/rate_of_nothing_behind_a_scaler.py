"""The rate is far too small; that gradients are clipped while scaled does not matter to Adam.

finding: too slow
"""

import torch
from torch import nn


def program() -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-8)  # cause
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for _ in range(8):
        optimizer.zero_grad()
        scaler.scale((net(torch.randn(16, 4)) - 3).square().mean()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
