"""The angle between two directions that are the same: acos at 1.

pattern: acos at the edge
node: AcosBackward0
"""

import torch
from torch import Tensor, nn


class Pose(nn.Module):
    """Predicts an axis of rotation."""

    def __init__(self) -> None:
        super().__init__()
        self.axis = nn.Parameter(torch.tensor([[0.0, 0.0, 2.0], [1.0, 2.0, 2.0]]))

    def forward(self, target: Tensor) -> Tensor:
        cosine = (nn.functional.normalize(self.axis, dim=-1) * target).sum(-1)
        return torch.acos(cosine)  # cause


def program() -> None:
    """A training step; the first axis is right already."""
    model = Pose()
    model(torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])).mean().backward()


if __name__ == "__main__":
    program()
