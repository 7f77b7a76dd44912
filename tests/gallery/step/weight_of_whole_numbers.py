"""The weight of a penalty is step // total: 0 until the end.

finding: weight 0
"""

import torch
from torch import nn


def program() -> None:
    encoder, decoder = nn.Linear(6, 3), nn.Linear(3, 6)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
    total = 12
    for step in range(total):
        x = torch.randn(10, 6)
        code = encoder(x)
        share = min(step // total, 1) * 0.5  # cause
        loss = (decoder(code) - x).square().mean() + share * code.abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
