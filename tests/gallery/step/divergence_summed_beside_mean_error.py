"""The error of frames is a mean, the divergence of their codes a sum over the batch.

finding: whole batch
"""

import torch
import torch.nn.functional as F
from torch import nn


def program() -> None:
    encode, decode = nn.Linear(20, 8), nn.Linear(4, 20)
    optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()], lr=1e-3)
    for _ in range(6):
        frames = torch.randn(16, 20)
        mean, spread = encode(frames).chunk(2, dim=1)
        made = decode(mean + torch.randn_like(mean) * (spread / 2).exp())
        divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).sum()  # cause
        loss = F.mse_loss(made, frames) + divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
