"""Hooks of two device threads take two locks in opposite order.

node: SinBackward0
thread: pt_autograd_0
hook: on_first
node: CosBackward0
thread: pt_autograd_1
hook: on_second
waiting: MainThread
"""

import threading

import torch
from torch import Tensor
from torch.autograd.graph import Node

first, second = threading.Lock(), threading.Lock()
both = threading.Barrier(2)
DEVICES = {"SinBackward0": 0, "CosBackward0": 1}


def device_policy(node: Node) -> int:
    """One device for each half of the model."""
    return DEVICES.get(node.name(), -1)


def on_first(gradient: Tensor) -> None:
    """Write what both devices share."""
    with first:
        both.wait()
        with second:  # cause
            print(gradient.norm())


def on_second(gradient: Tensor) -> None:
    """Write what both devices share."""
    with second:
        both.wait()
        with first:
            print(gradient.norm())


def program() -> None:
    """One step of a model in two halves."""
    x = torch.ones(3, requires_grad=True)
    left, right = (x * 2).sin(), (x * 3).cos()
    left.register_hook(on_first)
    right.register_hook(on_second)
    (left + right).sum().backward()


if __name__ == "__main__":
    program()
