"""A gradient penalty takes the root of a sum of squares that is 0 for one sample.

pattern: norm at zero
node: SqrtBackward0
"""

import torch
from torch import nn


def program() -> None:
    """The critic's step of WGAN-GP; nothing of the last sample passes its activation."""
    first = nn.Linear(4, 8)
    critic = nn.Sequential(first, nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():
        first.bias.fill_(-1.0)
    x = torch.randn(6, 4) * 4
    x[5] = 0
    x.requires_grad_()
    (slopes,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    norms = slopes.pow(2).sum(-1).sqrt()  # cause
    (norms - 1).pow(2).mean().backward()


if __name__ == "__main__":
    program()
