"""Log-probabilities of -inf in a lattice, of which no row is -inf as a whole."""

import torch
from torch import Tensor, nn


class Lattice(nn.Module):
    """Forward algorithm with transitions that are forbidden."""

    def __init__(self) -> None:
        super().__init__()
        self.emit = nn.Linear(4, 3)
        self.move = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        forbidden = torch.tensor([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=torch.bool)
        move = self.move.masked_fill(forbidden, float("-inf"))
        state = self.emit(x[0])
        for part in x[1:]:
            state = (state[:, None] + move).logsumexp(0) + self.emit(part)
        return -state.logsumexp(0)


def program() -> None:
    """A training step."""
    Lattice()(torch.randn(5, 4)).backward()


if __name__ == "__main__":
    program()
