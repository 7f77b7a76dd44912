"""A watcher normalises what its backward hook is given, to print it.

finding: hook writes
"""

import torch
from torch import Tensor, nn


class Watcher:
    """Keeps the largest share of one element."""

    def __init__(self, layer: nn.Module) -> None:
        self.shares: list[float] = []
        layer.register_full_backward_pre_hook(self.watch)

    def watch(self, _layer: nn.Module, grads: tuple[Tensor]) -> None:
        grad = grads[0].detach()
        grad /= grad.abs().sum()  # cause
        self.shares.append(float(grad.max()))


def program() -> Watcher:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
    watcher = Watcher(model[2])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(10):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        (model(x) - x.mean(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    return watcher
