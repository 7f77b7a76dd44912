"""A recurrent network's hidden state is carried over to the next step with its graph.

error: second time
node: TanhBackward0
"""

import torch
from torch import Tensor, nn


class Cell(nn.Module):
    """A recurrent cell."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 4)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        return torch.tanh(self.mix(torch.cat([x, hidden], dim=1)))


def program() -> None:
    """Truncated backpropagation through time, but for the truncation."""
    torch.manual_seed(0)
    cell, readout = Cell(), nn.Linear(4, 1)
    optimizer = torch.optim.SGD(readout.parameters(), lr=0.1)
    hidden = torch.zeros(3, 4)
    for _ in range(3):
        optimizer.zero_grad()
        hidden = cell(torch.randn(3, 2), hidden)  # cause
        loss = readout(hidden).square().mean()
        loss.backward()


if __name__ == "__main__":
    program()
