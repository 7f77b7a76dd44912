"""Slices that are copied first, seen once, bounded, written as a memory, or no views at all."""

import torch
from torch import nn
from torch.nn import functional as F


def program() -> None:
    net = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

    def follow(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = net(x)
        optimizer.zero_grad()
        F.mse_loss(found, y).backward()
        optimizer.step()
        return found.detach()

    inputs, targets = torch.randn(24, 5), torch.randn(24, 3)
    memory, seen = torch.zeros(24, 3), torch.rand(24, 5)
    for start in range(0, 24, 8):
        once = seen[start : start + 8]
        once -= 0.5
        follow(once, targets[start : start + 8])
    for epoch in range(3):
        order = torch.randperm(24)
        for start in range(0, 24, 8):
            rows = slice(start, start + 8)
            own = inputs[rows].clone()
            own += 0.1 * torch.randn_like(own)
            picked = targets[order[rows]]
            picked *= 0.9
            found = follow(own, picked)
            bounded = targets[rows]
            bounded.clamp_(-2.0, 2.0)
            kept = memory[rows]
            kept *= 0.5
            kept += 0.5 * found
            follow(inputs[rows], bounded + 0.1 * kept.tanh())
            follow(inputs[rows], kept)
            first = inputs[rows]
            if epoch == 0:
                first *= 2
            follow(first, targets[rows])
            state = memory[rows]
            state += 0.1
            memory[rows] = follow(inputs[rows], state)
            plain = targets[rows]
            plain = plain / 2
            follow(inputs[rows], plain)
