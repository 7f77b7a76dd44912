"""Two ranks average gradients in a hook of the parameter; one has a parameter that it never uses.

node: AccumulateGrad
parameter: head.weight
thread: rank 0
hook: average
kind: post_accumulate_grad
"""

import threading

import torch
from torch import Tensor, nn

all_ranks = threading.Barrier(2)


class Model(nn.Module):
    """A body, and a head for the second task."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3, bias=False)
        self.head = nn.Linear(3, 1, bias=False)

    def forward(self, x: Tensor, *, both: bool) -> Tensor:
        features = self.body(x)
        answer: Tensor = self.head(features) if both else features
        return answer


def average(parameter: Tensor) -> None:
    """Wait for all ranks, as an all-reduce does."""
    all_ranks.wait()  # cause


def rank(number: int, model: Model) -> None:
    """One step; only rank 0 has examples of the second task."""
    if number == 0:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(average)
    model(torch.randn(2, 4), both=number == 0).sum().backward()


def program() -> None:
    """Two ranks."""
    models = [Model(), Model()]
    ranks = [
        threading.Thread(target=rank, args=(i, models[i]), name=f"rank {i}", daemon=True)
        for i in range(2)
    ]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


if __name__ == "__main__":
    program()
