"""The bias of the keys adds the same to all scores of a query.

cause: shift
node: AddmmBackward0
parameter: key.bias
"""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(4, 4)
        self.key = nn.Linear(4, 4)
        self.value = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        keys = self.key(x)  # cause
        scores = self.query(x) @ keys.transpose(-1, -2)
        out: Tensor = torch.softmax(scores, -1) @ self.value(x)
        return out


def program() -> nn.Module:
    """One training step."""
    model = Model()
    model(torch.randn(3, 5, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
