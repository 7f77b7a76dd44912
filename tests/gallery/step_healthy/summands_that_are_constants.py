"""Constants, distances that are only shown, and penalties with gradients are added to a loss."""

import math

import torch
from torch import Tensor, nn


def program() -> None:
    net, old = nn.Linear(4, 3), nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    scale = 1e-3

    def distance(x: Tensor) -> Tensor:
        with torch.no_grad():
            return (net(x) - old(x)).square().mean()

    for _ in range(8):
        x = torch.randn(16, 4)
        labels = x[:, :3].argmax(1)
        chances = net(x).softmax(-1)
        counts = torch.bincount(labels, minlength=3) / len(labels)
        shown = distance(x)
        loss = nn.functional.nll_loss(chances.log(), labels) + 0.5 * math.log(2 * math.pi)
        loss = loss + 0.01 * (counts * chances.mean(0)).sum() + shown
        loss = loss + scale * net.weight.square().sum() + 0.1 * shown.detach()
        shown = loss.item() + 0.5 * counts.max().item()
        target = loss.detach() * 0.9
        error = target - loss
        optimizer.zero_grad()
        (loss + 0.1 * error * error).backward()
        optimizer.step()
