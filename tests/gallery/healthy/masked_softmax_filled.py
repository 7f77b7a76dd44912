"""A row of -inf whose NaN is replaced before it is used; masked_fill keeps its gradient out.

masked: SoftmaxBackward0
"""

import torch
from torch import Tensor, nn


class Pointer(nn.Module):
    """Probabilities over what may be pointed at."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 3)

    def forward(self, x: Tensor, is_allowed: Tensor) -> Tensor:
        scores = self.score(x).masked_fill(~is_allowed, float("-inf"))
        return torch.softmax(scores, -1).nan_to_num(0.0)


def program() -> None:
    """A training step; the last sample may point at nothing."""
    model = Pointer()
    is_allowed = torch.tensor([[True, True, False], [False, True, True], [False, False, False]])
    model(torch.randn(3, 4), is_allowed)[:, 0].mean().backward()


if __name__ == "__main__":
    program()
