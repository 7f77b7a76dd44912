"""A pre-hook puts gradients into a queue that is read after backward, and the queue is full.

node: TanhBackward0
thread: MainThread
hook: record
kind: pre
"""

import queue
from typing import Any

import torch
from torch import nn

recorded: queue.Queue[Any] = queue.Queue(maxsize=2)


def record(given: Any) -> None:
    """Keep what arrives, for a histogram."""
    recorded.put(given)  # cause


def program() -> None:
    """One step of a network with more layers than there is room in the queue."""
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(3, 3), nn.Tanh()]
    x = torch.randn(2, 3)
    for layer in layers:
        x = layer(x)
        made_by: Any = x.grad_fn
        if isinstance(layer, nn.Tanh):
            made_by.register_prehook(record)
    x.sum().backward()
    while not recorded.empty():
        print(recorded.get())


if __name__ == "__main__":
    program()
