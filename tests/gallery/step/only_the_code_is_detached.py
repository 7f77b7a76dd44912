"""A quantised code is detached by itself, and not its difference from what it stands for.

finding: undetached
"""

import torch
from torch import Tensor, nn


def rounded(signal: Tensor) -> Tensor:
    level = (signal * 4).floor() / 4
    return signal + (level.detach() - signal)  # cause


def program() -> None:
    encoder, decoder = nn.Linear(6, 3), nn.Linear(3, 6)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
    for _ in range(6):
        x = torch.randn(12, 6)
        loss = (decoder(rounded(encoder(x))) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
