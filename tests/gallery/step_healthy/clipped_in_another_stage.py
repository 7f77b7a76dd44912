"""The first stage clips, and is not run here; the second one does not, as is meant."""

import torch
from torch import nn


def pretrain(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(100):
        optimizer.zero_grad()
        net(torch.randn(8, 4)).square().mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        optimizer.step()


def fine_tune(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(10):
        optimizer.zero_grad()
        (net(torch.randn(8, 4)) - 4).square().mean().backward()
        optimizer.step()


def program() -> None:
    net = nn.Linear(4, 1)
    fine_tune(net, torch.optim.SGD(net.parameters(), 0.05))
