"""Gradients of a step that was skipped were not cleared, and are added to.

pattern: non-finite .grad from before
kind: accumulated
node: AccumulateGrad
parameter: weight
"""

import torch
from torch import nn


def program() -> None:
    """A training step after one that had overflowed."""
    model = nn.Linear(4, 1)
    model.weight.grad = torch.full((1, 4), float("inf"))
    model(torch.randn(3, 4)).mean().backward()


if __name__ == "__main__":
    program()
