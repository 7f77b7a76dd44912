"""Distances to what is not there are infinite, and the minimum never takes them."""

import torch
from torch import Tensor, nn


class Nearest(nn.Module):
    """The distance to the nearest of the valid anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors = nn.Parameter(torch.randn(5, 3))

    def forward(self, x: Tensor, is_valid: Tensor) -> Tensor:
        squares = (x[:, None] - self.anchors).pow(2).sum(-1)
        return squares.masked_fill(~is_valid, float("inf")).amin(-1)


def program() -> None:
    """A training step."""
    model = Nearest()
    is_valid = torch.tensor([True, False, True, True, False])
    model(torch.randn(6, 3), is_valid).mean().backward()


if __name__ == "__main__":
    program()
