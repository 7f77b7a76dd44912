"""A loop without an optimizer moves weights by their gradients, which it never clears.

finding: kept
"""

import torch


def program() -> None:
    slope = torch.zeros(3, requires_grad=True)
    offset = torch.zeros(1, requires_grad=True)
    for _ in range(12):
        x = torch.randn(20, 3)
        error = x @ slope + offset - x.sum(1)
        error.square().mean().backward()
        with torch.no_grad():
            for weight in (slope, offset):
                assert weight.grad is not None
                weight.sub_(0.01 * weight.grad)  # cause
