"""A custom Function's backward waits for an answer, and who should give it has gone.

node: AskBackward
thread: MainThread
"""

import queue
import threading
from typing import Any

import torch
from torch import Tensor

questions: queue.Queue[Tensor] = queue.Queue()
answers: queue.Queue[Tensor] = queue.Queue()


def serve() -> None:
    """Answer one question too few."""
    answers.put(questions.get() * 2)


class Ask(torch.autograd.Function):
    """A function whose gradient is computed elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        questions.put(gradient)
        return answers.get()  # cause


def program() -> None:
    """Two steps, for the second of which there is no server any more."""
    threading.Thread(target=serve, name="server", daemon=True).start()
    weight = torch.ones(3, requires_grad=True)
    for _ in range(2):
        loss: Tensor = Ask.apply(weight.exp()).sum()
        loss.backward()


if __name__ == "__main__":
    program()
