"""Pulses with one channel are compared along time, and bounded by a norm over their channel."""

import torch
from torch import nn
from torch.nn import functional


def program() -> None:
    filtering = nn.Sequential(nn.Conv1d(1, 3, 3, padding=1), nn.Tanh(), nn.Conv1d(3, 1, 1))
    optimizer = torch.optim.SGD(filtering.parameters(), lr=1e-2)
    for _ in range(6):
        pulses = torch.randn(10, 1, 12)
        given = filtering(pulses + 0.1 * torch.randn(10, 1, 12))
        alike = functional.cosine_similarity(given, pulses, dim=-1)
        large = torch.linalg.vector_norm(given - pulses, dim=1)
        optimizer.zero_grad()
        (1 - alike.mean() + 0.01 * large.mean()).backward()
        optimizer.step()
