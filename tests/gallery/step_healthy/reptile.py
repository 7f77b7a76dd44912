"""An inner Adam is made anew for each task, and the weights go half of the way."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

    def adapt(task_shift: torch.Tensor, inner_steps: int = 2) -> None:
        inner = torch.optim.Adam(model.parameters(), lr=1e-2)  # each task begins without state
        for _ in range(inner_steps):
            x = torch.rand(16, 1) * 6
            loss = (model(x) - torch.sin(x + task_shift)).square().mean()
            inner.zero_grad()
            loss.backward()
            inner.step()

    for _task in range(30):
        before = [p.detach().clone() for p in model.parameters()]
        adapt(torch.rand(1) * 3)
        with torch.no_grad():
            for p, old in zip(model.parameters(), before, strict=False):
                p.copy_(old + 0.5 * (p - old))
