"""A square root at 0 inside of a checkpointed block, whose saved tensors are packed away.

pattern: sqrt at zero
node: SqrtBackward0
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """Signed roots of features."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.embed(x).abs().sqrt()  # cause


def program() -> None:
    """A training step that recomputes the block."""
    block, head = Block(), nn.Linear(4, 1)
    x = torch.randn(5, 4)
    x[1] = 0
    hidden = checkpoint(block, x, use_reentrant=False)
    head(hidden).mean().backward()


if __name__ == "__main__":
    program()
