"""A mask of -inf is added to scores, and leaves nothing of one row, in float16.

pattern: softmax of a row of -inf
node: SoftmaxBackward0
"""

import torch
from torch import Tensor, nn


class Window(nn.Module):
    """Attention within a window."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 5, dtype=torch.float16)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return (self.score(x) + mask).softmax(-1)  # cause


def program() -> None:
    """A training step; the window of the last token lies outside."""
    model = Window()
    mask = torch.zeros(3, 5, dtype=torch.float16)
    mask[2] = float("-inf")
    model(torch.randn(3, 4, dtype=torch.float16), mask)[:, 0].float().mean().backward()


if __name__ == "__main__":
    program()
