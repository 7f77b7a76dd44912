"""What a reentrant checkpoint keeps to compute its block again is modified afterwards.

error: modified by an inplace operation
node: CheckpointFunctionBackward
saved: tensors[0]
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    """A checkpointed block, and a shortcut around it that is scaled in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.block = nn.Sequential(nn.Linear(6, 6), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x) + 0.0
        deep: Tensor = checkpoint(self.block, hidden, use_reentrant=True)
        hidden.mul_(0.5)  # cause
        return hidden + deep


def program() -> None:
    """One training step."""
    torch.manual_seed(0)
    Model()(torch.randn(3, 6)).sum().backward()


if __name__ == "__main__":
    program()
