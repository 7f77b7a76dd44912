"""Gradients are accumulated over four batches, and never cleared after the step.

finding: kept
"""

import torch
from torch import nn


def program() -> None:
    model = nn.GRU(4, 8, batch_first=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(24):
        out, _ = model(torch.randn(3, 5, 4))
        (out.square().mean() / 4).backward()
        if step % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()  # cause
