"""After linear probing, all layers are unfrozen to be scored; which to train is chosen by that."""

import torch
from torch import nn


def program() -> None:
    body, head = nn.Linear(6, 8), nn.Linear(8, 3)
    net = nn.Sequential(body, nn.Tanh(), head)
    body.requires_grad_(False)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)
    for _ in range(12):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(torch.randn(16, 6)), torch.arange(16) % 3)
        loss.backward()
        optimizer.step()
    net.requires_grad_(True)
    scores = [0.0, 0.0]
    for _ in range(8):
        net.zero_grad()
        nn.functional.cross_entropy(net(torch.randn(16, 6)), torch.arange(16) % 3).backward()
        for place, layer in enumerate((body, head)):
            if layer.weight.grad is not None:
                scores[place] += layer.weight.grad.norm().item()
