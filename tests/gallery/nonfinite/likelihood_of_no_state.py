"""logsumexp over states that are all excluded by adding -inf.

pattern: softmax of a row of -inf
node: LogsumexpBackward0
"""

import torch
from torch import Tensor, nn


class Chain(nn.Module):
    """Log-likelihoods of sequences, over the states that are allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.emit = nn.Linear(4, 3)

    def forward(self, x: Tensor, penalty: Tensor) -> Tensor:
        scores = self.emit(x) + penalty
        return scores.logsumexp(-1)  # cause


def program() -> None:
    """A training step; the last sample allows no state."""
    model = Chain()
    penalty = torch.zeros(3, 3)
    penalty[0, 2] = penalty[1, 1] = penalty[2] = float("-inf")
    likelihood = model(torch.randn(3, 4), penalty)
    torch.sigmoid(likelihood).mean().backward()


if __name__ == "__main__":
    program()
