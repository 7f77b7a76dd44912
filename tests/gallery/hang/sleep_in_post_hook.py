"""A post-hook that is to limit the load sleeps, for a time that was given in the wrong unit.

node: TanhBackward0
thread: MainThread
hook: throttle
kind: post
"""

import time
from typing import Any

import torch
from torch import nn

MILLISECONDS = 200


def throttle(made: Any, given: Any) -> None:
    """Let others have the machine for a while."""
    time.sleep(MILLISECONDS)  # cause


def program() -> None:
    """One step."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    output = model(torch.randn(2, 4))
    made_by: Any = output.grad_fn
    made_by.register_hook(throttle)
    output.sum().backward()


if __name__ == "__main__":
    program()
