"""RMS normalisation by hand, without eps, of a padding token.

pattern: normalisation with zero variance
node: MulBackward0
"""

import torch
from torch import Tensor, nn


class RmsNorm(nn.Module):
    """Divides by the root of the mean square."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))  # cause


def program() -> None:
    """A training step; the output of the padding is not looked at."""
    embed = nn.Embedding(6, 4, padding_idx=0)
    model = RmsNorm()
    out = model(embed(torch.tensor([3, 5, 0])))
    out[:2].sum().backward()


if __name__ == "__main__":
    program()
