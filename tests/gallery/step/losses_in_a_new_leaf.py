"""The terms of a loss are put into a new tensor, which requires a gradient and has no graph.

finding: no gradient
"""

import torch
from torch import nn


class _Terms:
    """A weighted sum of losses."""

    def __init__(self, weights: list[float]) -> None:
        self.weights = torch.tensor(weights)

    def __call__(self, terms: list[torch.Tensor]) -> torch.Tensor:
        values = torch.tensor(terms, requires_grad=True)  # cause
        return (self.weights * values).sum()


def program() -> None:
    model, terms = nn.Linear(4, 3), _Terms([1.0, 0.5])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(6):
        out = model(torch.randn(8, 4))
        loss = terms([out.square().mean(), out.abs().mean()])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
