"""The gradient of a domain's loss is turned round by a Function, and by a minus.

finding: reversed twice
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class _TurnRound(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, by: float) -> Tensor:
        ctx.by = by
        return features.view_as(features)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.by * gradient, None


def program() -> None:
    features, classes, domains = nn.Linear(6, 12), nn.Linear(12, 3), nn.Linear(12, 1)
    every = [*features.parameters(), *classes.parameters(), *domains.parameters()]
    optimizer = torch.optim.Adam(every, lr=0.01)
    for _ in range(8):
        made = features(torch.randn(16, 6)).relu()
        wanted, origin = torch.randint(3, (16,)), torch.rand(16, 1).round()
        of_classes = functional.cross_entropy(classes(made), wanted)
        judged = domains(_TurnRound.apply(made, 0.5))
        of_domains = functional.binary_cross_entropy_with_logits(judged, origin)  # cause
        loss = of_classes - 0.3 * of_domains
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
