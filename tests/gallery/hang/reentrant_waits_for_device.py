"""A reentrant backward waits for a device thread, whose hook waits for the outer backward.

node: ExpBackward0
thread: pt_autograd_0
hook: after_the_step
kind: post
waiting: MainThread
depth: 1
"""

import threading
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

step_is_over = threading.Event()


def device_policy(node: Node) -> int:
    """Exponentials are computed on a device."""
    return 0 if node.name() == "ExpBackward0" else -1


def after_the_step(made: Any, given: Any) -> None:
    """Wait until nobody uses the weights."""
    step_is_over.wait()  # cause


def inner_step(gradient: Tensor) -> Tensor:
    """Scale a gradient by that of an energy, for which it goes backward itself."""
    with torch.enable_grad():
        inner = gradient.detach().requires_grad_()
        energy = inner.exp()
        made_by: Any = energy.grad_fn
        made_by.register_hook(after_the_step)
        energy.sum().backward()
    assert inner.grad is not None
    return gradient * inner.grad


def program() -> None:
    """One step."""
    weight = torch.ones(3, requires_grad=True)
    output = weight * 2
    output.register_hook(inner_step)
    output.sum().backward()
    step_is_over.set()


if __name__ == "__main__":
    program()
