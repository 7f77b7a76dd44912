"""What was drawn is worked out of a denoised image by a division, which has hardly any noise left.

finding: diverges
"""

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(4)
    denoiser = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
    optimizer = torch.optim.SGD(denoiser.parameters(), lr=0.002, momentum=0.9)  # cause
    for _ in range(12):
        clean, drawn = torch.randn(40, 6), torch.randn(40, 6)
        noise = torch.rand(40, 1).pow(3) + 1e-3
        noisy = clean + noise * drawn
        found = (noisy - denoiser(noisy)) / noise
        optimizer.zero_grad()
        (found - drawn).square().mean().backward()
        optimizer.step()
