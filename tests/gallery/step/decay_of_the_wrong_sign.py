"""The state of a recurrence is multiplied by exp of something positive in each step.

finding: grows each step
"""

import torch
from torch import Tensor, nn


class StateSpace(nn.Module):
    """A diagonal state space with one decay for each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into = nn.Linear(2, width)
        self.rate = nn.Parameter(torch.zeros(width))
        self.out = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        given = self.into(x)
        decay = (0.5 * nn.functional.softplus(self.rate)).exp()
        state = torch.zeros_like(given[:, 0])
        for each in given.unbind(1):
            state = decay * state + each  # cause
        return self.out(state)


def program() -> None:
    model = StateSpace(6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(5):
        x = torch.randn(8, 30, 2)
        loss = (model(x) - x.mean((1, 2))[:, None]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
