"""The exponential of a log-variance overflows in the KL divergence of a VAE.

pattern: overflow of exp
node: ExpBackward0
"""

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """Mean and log-variance of a code."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        mean, log_variance = self.head(x).chunk(2, -1)
        variance = log_variance.exp()  # cause
        return -0.5 * (1 + log_variance - mean.pow(2) - variance).sum(-1)


def program() -> None:
    """A training step on a sample that is far out."""
    model = Encoder()
    with torch.no_grad():
        model.head.weight.fill_(1.0)
    x = torch.randn(8, 4)
    x[3] = 30.0
    model(x).mean().backward()


if __name__ == "__main__":
    program()
