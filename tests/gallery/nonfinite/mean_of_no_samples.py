"""The mean of a class of which the batch has no sample: 0 / 0.

pattern: division by zero
node: PowBackward0
op: Tensor.div
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Prototypes(nn.Module):
    """The mean embedding of each class."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 4)

    def forward(self, x: Tensor, classes: Tensor) -> Tensor:
        members = nn.functional.one_hot(classes, 3).to(x.dtype)
        sums = members.T @ self.embed(x)
        return sums / members.sum(0)[:, None]  # cause


def program() -> None:
    """A step of a prototypical network; class 2 is absent."""
    model = Prototypes()
    model(torch.randn(6, 5), torch.tensor([0, 1, 1, 0, 0, 1])).pow(2).mean().backward()


if __name__ == "__main__":
    program()
