"""A trainer keeps what filter() gives, hands it to the optimizer, and clips nothing with it.

finding: not clipped
"""

import warnings

import torch
from torch import nn


class Forecaster:
    """Trains a recurrent network by itself."""

    def __init__(self) -> None:
        self.cell, self.out = nn.RNN(1, 8, batch_first=True), nn.Linear(8, 1)
        model = nn.ModuleList([self.cell, self.out])
        self.trained = filter(lambda p: p.requires_grad, model.parameters())
        self.optimizer = torch.optim.SGD(self.trained, lr=1e-5)

    def fit(self, series: torch.Tensor) -> None:
        given = self.out(self.cell(series)[0][:, -1])
        self.optimizer.zero_grad()
        (100 * given - 80 * series.sum(1)).square().mean().backward()
        nn.utils.clip_grad_norm_(self.trained, 0.5)  # cause
        self.optimizer.step()


def program() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forecaster = Forecaster()
        for _ in range(6):
            forecaster.fit(torch.randn(16, 12, 1))
