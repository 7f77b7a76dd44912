"""A weight is NaN, as a broken checkpoint left it.

pattern: NaN in a parameter
node: MseLossBackward0
op: torch.nn.functional.linear
parameter: last.weight
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Regressor(nn.Module):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.last = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        out: Tensor = self.last(hidden)
        return out


def program() -> None:
    """A training step."""
    model = Regressor()
    state = model.state_dict()
    state["last.weight"][0, 1] = float("nan")  # cause
    model.load_state_dict(state)
    nn.functional.mse_loss(model(torch.randn(5, 4)), torch.zeros(5, 1)).backward()


if __name__ == "__main__":
    program()
