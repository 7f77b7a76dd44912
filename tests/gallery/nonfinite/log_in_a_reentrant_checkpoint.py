"""log(0) inside of a reentrant checkpoint: the graph task inside holds the origin.

pattern: log of zero
node: LogBackward0
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """Logarithms of gated features."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([1.0, 0.0, 2.0]))

    def forward(self, x: Tensor) -> Tensor:
        logs = torch.log(x.abs() * self.gain)  # cause
        return torch.sigmoid(logs) + logs.clamp(min=-100) * 0.1


def program() -> None:
    """A training step that runs backward inside of backward."""
    embed, block = nn.Linear(4, 3), Block()
    hidden = checkpoint(block, embed(torch.randn(5, 4)), use_reentrant=True)
    hidden.mean().backward()


if __name__ == "__main__":
    program()
