"""A gradient penalty by torch's own norm, which is 0 for one sample: double backward."""

import torch
from torch import nn


def program() -> None:
    """The critic's step of WGAN-GP."""
    first = nn.Linear(4, 8)
    critic = nn.Sequential(first, nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():
        first.bias.fill_(-1.0)
    x = torch.randn(6, 4) * 4
    x[5] = 0
    x.requires_grad_()
    (slopes,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    (slopes.norm(dim=-1) - 1).pow(2).mean().backward()


if __name__ == "__main__":
    program()
