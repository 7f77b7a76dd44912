"""Properties are read for what they do, methods are handed on, and one is named and called."""

import torch
from torch import nn


class Meter:
    """Counts each time it is asked."""

    count = 0

    @property
    def update(self) -> int:
        self.count += 1
        return self.count


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    meter, finish = Meter(), []
    for _ in range(8):
        clear = optimizer.zero_grad
        clear()
        x = torch.randn(16, 4)
        nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
        optimizer.step  # noqa: B018
        optimizer.step()
        meter.update  # noqa: B018
    finish.append(model.eval)


def never_called(model: nn.Module) -> None:
    model.eval  # noqa: B018
