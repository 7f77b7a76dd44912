"""A GAN whose generator step scores a detached sample: the generator never learns.

gradient: none
cause: detach
parameter: Generator.*
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Generator(nn.Module):
    """Noise to samples."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(2, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, noise: Tensor) -> Tensor:
        return self.out(F.leaky_relu(self.hidden(noise), 0.2))


class Discriminator(nn.Module):
    """Samples to scores."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(3, 8)
        self.score = nn.Linear(8, 1)

    def forward(self, sample: Tensor) -> Tensor:
        return self.score(F.leaky_relu(self.hidden(sample), 0.2))


def program() -> dict[str, nn.Module]:
    """A step of the discriminator and a step of the generator."""
    generator, discriminator = Generator(), Discriminator()
    real, noise = torch.randn(4, 3), torch.randn(4, 2)
    fake = generator(noise).detach()  # cause
    scores = torch.cat([discriminator(real), discriminator(fake)])
    target = torch.cat([torch.ones(4, 1), torch.zeros(4, 1)])
    F.binary_cross_entropy_with_logits(scores, target).backward()
    F.binary_cross_entropy_with_logits(discriminator(fake), torch.ones(4, 1)).backward()
    return {"Generator": generator, "Discriminator": discriminator}


if __name__ == "__main__":
    program()
