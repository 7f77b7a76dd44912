"""The closure of LBFGS does not clear the gradients.

finding: kept
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=1)
    x = torch.randn(20, 3)

    def closure() -> float:
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss.item()

    for _ in range(8):
        optimizer.step(closure)  # cause
