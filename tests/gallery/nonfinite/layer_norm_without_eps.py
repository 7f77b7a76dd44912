"""layer_norm without eps on features that are all the same.

pattern: normalisation with zero variance
node: NativeLayerNormBackward0
"""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """A normalised layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4, eps=0.0)
        self.embed = nn.Linear(3, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.embed(x))  # cause
        return y


def program() -> None:
    """A training step with an empty token; its output is not looked at."""
    model = Block()
    x = torch.randn(5, 3)
    x[4] = 0
    model(x)[:4].pow(3).mean().backward()


if __name__ == "__main__":
    program()
