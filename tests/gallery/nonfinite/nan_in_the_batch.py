"""One value of the batch is missing, and stands there as NaN.

pattern: NaN in the data
node: MseLossBackward0
op: torch.nn.functional.linear
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Regressor(nn.Module):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))  # cause
        out: Tensor = self.last(hidden)
        return out


def program() -> None:
    """A training step."""
    rows = [[0.1, 0.2, 0.3, 0.4], [0.5, float("nan"), 0.7, 0.8]]
    model = Regressor()
    nn.functional.mse_loss(model(torch.tensor(rows)), torch.zeros(2, 1)).backward()


if __name__ == "__main__":
    program()
