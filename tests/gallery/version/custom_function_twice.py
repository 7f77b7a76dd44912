"""A custom Function's saved tensors are gone when a second thread's loss goes backward.

error: second time
node: ScaleBackward
"""

import threading
from typing import Any

import torch
from torch import Tensor


class Scale(torch.autograd.Function):
    """The product with a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(x, factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, factor = ctx.saved_tensors
        return gradient * factor, gradient * x


def program() -> None:
    """One loss goes backward in a thread of its own, the other here."""
    torch.manual_seed(0)
    x, factor = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    shared: Tensor = Scale.apply(x, factor)

    def first() -> None:
        shared.sum().backward()  # cause

    thread = threading.Thread(target=first)
    thread.start()
    thread.join()
    shared.square().sum().backward()


if __name__ == "__main__":
    program()
