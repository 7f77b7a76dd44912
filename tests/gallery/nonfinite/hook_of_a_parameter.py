"""A hook of a parameter rescales its gradient by a statistic that is 0 at the start.

pattern: non-finite gradient from a hook
kind: hook
node: AccumulateGrad
"""

import torch
from torch import Tensor, nn


def program() -> None:
    """The first training step."""
    head = nn.Linear(4, 1)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), head)
    average = torch.zeros(())

    def rescale(gradient: Tensor) -> Tensor:
        return gradient / average

    head.weight.register_hook(rescale)
    model(torch.randn(5, 4)).pow(2).mean().backward()


if __name__ == "__main__":
    program()
