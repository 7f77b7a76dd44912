"""An optimizer of the program's own moves a frozen target towards the online network."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable


def program() -> None:
    class Polyak(torch.optim.Optimizer):
        def __init__(
            self, target: Iterable[nn.Parameter], online: Iterable[nn.Parameter], tau: float
        ) -> None:
            super().__init__(list(target), {"lr": tau})
            self.online = list(online)

        @torch.no_grad()
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            for t, o in zip(self.param_groups[0]["params"], self.online, strict=False):
                t.lerp_(o, self.param_groups[0]["lr"])

    q = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    target = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-2)
    polyak = Polyak(target.parameters(), q.parameters(), 0.05)
    for _step in range(60):
        s, s2 = torch.randn(32, 4), torch.randn(32, 4)
        r = s[:, 0]
        with torch.no_grad():
            y = r + 0.9 * target(s2).max(1).values
        loss = (q(s)[:, 0] - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        polyak.step()
