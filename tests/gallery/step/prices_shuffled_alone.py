"""Before each epoch the prices are shuffled, and the houses stay in their order.

finding: two orders
"""

import torch
from torch import Tensor, nn


def epoch(houses: Tensor, prices: Tensor, model: nn.Module, by: torch.optim.Optimizer) -> None:
    for _ in range(2):
        prices = prices[torch.randperm(len(prices))]  # cause
        for rows in torch.arange(len(houses)).split(10):
            by.zero_grad()
            (model(houses[rows]) - prices[rows]).square().mean().backward()
            by.step()


def program() -> None:
    houses = torch.randn(40, 6)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    epoch(houses, houses.sum(1, keepdim=True), model, optimizer)
