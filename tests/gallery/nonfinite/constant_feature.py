"""A batch is standardised, and one of its features is constant.

pattern: normalisation with zero variance
node: DivBackward0
"""

import torch
from torch import Tensor, nn


class Standardise(nn.Module):
    """Zero mean and unit deviation for each feature."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.embed(x)
        return (y - y.mean(0)) / y.std(0)  # cause


def program() -> None:
    """A training step; the last feature does not depend on the sample."""
    model = Standardise()
    with torch.no_grad():
        model.embed.weight[2] = 0
    torch.nan_to_num(model(torch.randn(8, 4))).pow(3).add(1).mean().backward()


if __name__ == "__main__":
    program()
