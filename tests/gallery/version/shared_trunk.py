"""Two losses share a trunk, whose graph the first backward frees.

error: second time
node: TanhBackward0
"""

import torch
from torch import Tensor, nn


class TwoHeads(nn.Module):
    """A trunk and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.classes = nn.Linear(8, 3)
        self.depth = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shared = self.trunk(x)
        return self.classes(shared), self.depth(shared)


def program() -> None:
    """One training step with one backward for each loss."""
    torch.manual_seed(0)
    model = TwoHeads()
    classes, depth = model(torch.randn(4, 5))
    loss_c = nn.functional.cross_entropy(classes, torch.tensor([0, 1, 2, 0]))
    loss_d = depth.square().mean()
    loss_c.backward()  # cause
    loss_d.backward()


if __name__ == "__main__":
    program()
