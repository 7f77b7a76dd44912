"""A hook waits for a lock that the main thread holds while it waits for the training thread.

node: AddmmBackward0
thread: trainer
hook: count_examples
kind: tensor_pre
"""

import threading

import torch
from torch import Tensor, nn

statistics = threading.Lock()
seen = [0]


def count_examples(gradient: Tensor) -> None:
    """Count the examples that have gone backward."""
    with statistics:  # cause
        seen[0] += len(gradient)


def train() -> None:
    """One step."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    output = model(torch.randn(2, 4))
    output.register_hook(count_examples)
    output.sum().backward()


def program() -> None:
    """Train in a thread, and report when that is done."""
    trainer = threading.Thread(target=train, name="trainer", daemon=True)
    with statistics:
        trainer.start()
        trainer.join()
        print(seen)


if __name__ == "__main__":
    program()
