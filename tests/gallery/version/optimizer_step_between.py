"""A GAN steps its discriminator between the generator's forward and its backward.

error: modified by an inplace operation
node: AddmmBackward0
saved: mat2
parameter: Sequential.2.weight
"""

import torch
from torch import nn


def program() -> None:
    """One round: the generator's loss is computed before the discriminator's step."""
    torch.manual_seed(0)
    generator = nn.Linear(4, 6)
    discriminator = nn.Sequential(nn.Linear(6, 5), nn.LeakyReLU(0.2), nn.Linear(5, 1))
    step_d = torch.optim.Adam(discriminator.parameters(), lr=0.01)
    fake = generator(torch.randn(3, 4))
    loss_d = discriminator(fake.detach()).mean() - discriminator(torch.randn(3, 6)).mean()
    loss_g = -discriminator(fake).mean()
    loss_d.backward()
    step_d.step()  # cause
    loss_g.backward()


if __name__ == "__main__":
    program()
