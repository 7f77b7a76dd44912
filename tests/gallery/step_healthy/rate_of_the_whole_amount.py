"""The rate of the whole amount, which is kept, and that of each species by itself."""

import torch
from torch import Tensor, nn


def rates(amounts: Tensor, minutes: Tensor) -> Tensor:
    found = [
        torch.autograd.grad(amount.sum(), minutes, create_graph=True)[0]
        for amount in amounts.unbind(1)
    ]
    return torch.cat(found, dim=1)


def program() -> None:
    course = nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 3))
    optimizer = torch.optim.NAdam(course.parameters(), lr=1e-3)
    exchange = torch.tensor([[-1.0, 1.0, 0.0], [0.0, -0.5, 0.5], [0.0, 0.0, 0.0]])
    for _ in range(5):
        minutes = torch.linspace(0.0, 2.0, 40).unsqueeze(1).requires_grad_()
        amounts = course(minutes).exp()
        whole = torch.autograd.grad(amounts.sum(), minutes, create_graph=True)[0]
        equations = rates(amounts, minutes) - amounts @ exchange
        begin = amounts[:1] - torch.tensor([1.0, 0.0, 0.0])
        loss = equations.square().mean() + begin.square().mean()
        loss = loss + (whole - 0.1 * amounts[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
