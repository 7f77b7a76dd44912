"""A final callback waits for a message that is only sent after backward.

thread: MainThread
hook: publish
kind: final_callback
"""

import threading
from typing import Any

import torch
from torch import Tensor, nn

received = threading.Condition()


def publish() -> None:
    """Wait until the gradients were fetched."""
    with received:
        received.wait()  # cause


def program() -> None:
    """One step, whose gradients are fetched when backward has returned."""
    model = nn.Linear(4, 1)
    output = model(torch.randn(2, 4))

    def queue(_: Tensor) -> None:
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback(publish)

    output.register_hook(queue)
    output.sum().backward()
    with received:
        received.notify_all()


if __name__ == "__main__":
    program()
