"""Which sensors matter is looked at after the step; a worst case is looked for before the loss."""

import torch
from torch import Tensor, nn


def relevance(net: nn.Module, rows: Tensor) -> Tensor:
    probe = rows.detach().requires_grad_()
    for weight in net.parameters():
        weight.grad = None
    net(probe).sum().backward()
    assert probe.grad is not None
    return probe.grad.abs().mean(0)


def worst(net: nn.Module, rows: Tensor, wear: Tensor) -> Tensor:
    rows = rows.clone().requires_grad_()
    nn.functional.huber_loss(net(rows).squeeze(1), wear).backward()
    assert rows.grad is not None
    return (rows + 0.1 * rows.grad.sign()).detach()


def program() -> Tensor:
    net = nn.Sequential(nn.Linear(7, 14), nn.ELU(), nn.Linear(14, 1))
    adam = torch.optim.Adam(net.parameters(), lr=3e-3)
    shares = torch.zeros(7)
    for _ in range(6):
        rows = torch.randn(20, 7)
        wear = rows[:, 0].sin()
        harder = worst(net, rows, wear)
        adam.zero_grad(set_to_none=True)
        nn.functional.huber_loss(net(harder).squeeze(1), wear).backward()
        adam.step()
        shares += relevance(net, rows)
    return shares
