"""Pulses with one channel are compared by their cosine, along that channel.

finding: single values
"""

import torch
from torch import nn
from torch.nn import functional


def program() -> None:
    filtering = nn.Sequential(nn.Conv1d(1, 3, 3, padding=1), nn.Tanh(), nn.Conv1d(3, 1, 1))
    optimizer = torch.optim.SGD(filtering.parameters(), lr=1e-2)
    for _ in range(6):
        pulses = torch.randn(10, 1, 12)
        noisy = pulses + 0.1 * torch.randn(10, 1, 12)
        alike = functional.cosine_similarity(filtering(noisy), pulses)  # cause
        optimizer.zero_grad()
        (1 - alike).mean().backward()
        optimizer.step()
