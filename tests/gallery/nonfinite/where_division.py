"""A quotient that torch.where guards against a divisor of 0.

pattern: 0 * inf behind torch.where
node: DivBackward0
"""

import torch
from torch import Tensor, nn


class Precision(nn.Module):
    """Soft precision of a detector, 0 where nothing was there to detect."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 3)

    def forward(self, x: Tensor, truth: Tensor, is_valid: Tensor) -> Tensor:
        found = torch.sigmoid(self.score(x)) * is_valid
        hits, total = (found * truth).sum(0), found.sum(0)
        precision = hits / total  # cause
        return torch.where(total > 0, precision, 0.0)


def program() -> None:
    """A training step in which the last class is valid nowhere."""
    model = Precision()
    truth = (torch.rand(8, 3) > 0.5).float()
    is_valid = torch.tensor([1.0, 1.0, 0.0])
    (1 - model(torch.rand(8, 4), truth, is_valid)).mean().backward()


if __name__ == "__main__":
    program()
