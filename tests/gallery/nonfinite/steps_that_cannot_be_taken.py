"""logaddexp of two ways, neither of which leads to a state: -inf, as it should be.

pattern: logaddexp of -inf and -inf
node: LogaddexpBackward0
"""

import torch
from torch import Tensor, nn


class Ways(nn.Module):
    """Log-likelihoods of going on or staying, of chains that begin at the first state."""

    def __init__(self) -> None:
        super().__init__()
        self.emit = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        score = torch.tensor([0.0, *[float("-inf")] * 3]).expand(len(x), 4)
        for _ in range(3):
            moved = torch.cat([torch.full((len(x), 1), float("-inf")), score[:, :-1]], 1)
            score = torch.logaddexp(score, moved) + self.emit(x)  # cause
        return score


def program() -> None:
    """A training step."""
    Ways()(torch.randn(5, 4))[:, -1].mean().neg().backward()


if __name__ == "__main__":
    program()
