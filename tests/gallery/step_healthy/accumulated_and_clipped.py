"""Gradients of four batches are summed, clipped, applied and cleared after the step."""

import torch
from torch import nn


def program() -> None:
    model = nn.LSTM(4, 8, batch_first=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(24):
        out, _ = model(torch.randn(3, 5, 4))
        (out.square().mean() / 4).backward()
        if step % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
