"""A loop without an optimizer clears the gradients by which it has moved its weights."""

import torch


def program() -> None:
    slope = torch.zeros(3, requires_grad=True)
    for _ in range(12):
        x = torch.randn(20, 3)
        (x @ slope - x.sum(1)).square().mean().backward()
        with torch.no_grad():
            assert slope.grad is not None
            slope -= 0.1 * slope.grad
            slope.grad.zero_()
