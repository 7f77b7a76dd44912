"""atan2 of a point that is as good as zero: its derivative overflows.

pattern: atan2 at the edge
node: Atan2Backward0
"""

import torch
from torch import Tensor, nn


class Heading(nn.Module):
    """The direction of a velocity."""

    def __init__(self) -> None:
        super().__init__()
        self.velocity = nn.Parameter(torch.tensor([[1.0, 1.0], [1e-20, 1e-20]]))

    def forward(self) -> Tensor:
        x, y = self.velocity.unbind(-1)
        return torch.atan2(y, x)  # cause


def program() -> None:
    """A training step; the second one does not move."""
    model = Heading()
    torch.cos(model() - 0.2).mean().backward()


if __name__ == "__main__":
    program()
