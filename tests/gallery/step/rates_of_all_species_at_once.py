"""Rates of three chemical species are derived at once, and their sum is compared with each.

finding: summed derivative
"""

import torch
from torch import nn


def program() -> None:
    course = nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 3))
    optimizer = torch.optim.NAdam(course.parameters(), lr=1e-3)
    exchange = torch.tensor([[-1.0, 1.0, 0.0], [0.0, -0.5, 0.5], [0.0, 0.0, 0.0]])
    for _ in range(5):
        minutes = torch.linspace(0.0, 2.0, 40).unsqueeze(1).requires_grad_()
        amounts = course(minutes).exp()
        rate = torch.autograd.grad(amounts.sum(), minutes, create_graph=True)[0]  # cause
        equations = rate - amounts @ exchange
        begin = amounts[:1] - torch.tensor([1.0, 0.0, 0.0])
        loss = equations.square().mean() + begin.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
