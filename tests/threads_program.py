"""Trains models in threads, and prints checksums of their parameters.

threads_program.py STEPS [FOLDER OPTIONS]: meanwhile one recording after the other, with OPTIONS
(JSON) of ``agviz.trace``, each of some steps, goes into a folder.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

torch.set_num_threads(1)
Made = tuple[nn.Module, "Callable[[], Any]"]


class Square(torch.autograd.Function):
    """A custom Function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


def transformer(random: torch.Generator) -> Made:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    head = nn.Linear(16, 1)

    def loss() -> Any:
        hidden: Any = checkpoint(
            layer, torch.randn(4, 6, 16, generator=random), use_reentrant=False
        )
        return head(hidden).pow(2).mean()

    return nn.ModuleList([layer, head]), loss


def convolutional(random: torch.Generator) -> Made:
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    )

    def loss() -> Any:
        batch = torch.randn(8, 1, 8, 8, generator=random)
        return functional.cross_entropy(model(batch), torch.randint(5, (8,), generator=random))

    return model, loss


def recurrent(random: torch.Generator) -> Made:
    cell, head = nn.LSTMCell(6, 10), nn.Linear(10, 1)

    def loss() -> Any:
        state = torch.zeros(3, 10), torch.zeros(3, 10)
        for _ in range(7):
            state = cell(torch.randn(3, 6, generator=random), state)
        square: Any = Square.apply
        return square(head(state[0])).sum()

    return nn.ModuleList([cell, head]), loss


def penalised(random: torch.Generator) -> Made:
    model = nn.Sequential(nn.Linear(5, 12), nn.Softplus(), nn.Linear(12, 1))

    def loss() -> Any:
        x = torch.randn(6, 5, generator=random).requires_grad_()
        y = model(x).sum()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        return y.pow(2) + (slope.norm(dim=1) - 1).pow(2).mean()

    return model, loss


class Training(threading.Thread):
    """A thread that trains a model of its own."""

    def __init__(self, number: int, make: Callable[[torch.Generator], Made], steps: int) -> None:
        super().__init__()
        torch.manual_seed(number)
        self.steps = steps
        self.model, self.loss = make(torch.Generator().manual_seed(number))
        self.is_through = False
        self.stepped = 0

    def run(self) -> None:
        optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        for _ in range(self.steps):
            optimizer.zero_grad()
            self.loss().backward()
            optimizer.step()
            self.stepped += 1
        self.is_through = True


def main() -> None:
    steps = int(sys.argv[1])
    makers = [transformer, convolutional, recurrent, penalised]
    trainings = [Training(number, make, steps) for number, make in enumerate(2 * makers)]
    if len(sys.argv) > 2:
        import agviz  # takes as long as some steps, of which none would be recorded

    for training in trainings:
        training.start()
    if len(sys.argv) > 2:
        folder, options = Path(sys.argv[2]), json.loads(sys.argv[3])
        number = 0
        while any(training.is_alive() for training in trainings):
            until = sum(training.stepped for training in trainings) + len(trainings)
            with agviz.trace(path=folder / f"{number}.agviz", **options):
                while sum(training.stepped for training in trainings) < until:
                    if not any(training.is_alive() for training in trainings):
                        break
                    time.sleep(0.01)
            number += 1
    for training in trainings:
        training.join()
        every = b"".join(one.detach().numpy().tobytes() for one in training.model.parameters())
        print(training.is_through, hashlib.sha256(every).hexdigest())


if __name__ == "__main__":
    main()
