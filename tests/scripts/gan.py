"""A GAN learns a ring of points: two models, two optimizers, two losses, spectral norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm


def ring(count: int) -> Tensor:
    """Points near the unit circle."""
    angle = torch.rand(count) * 6.2832
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.02 * torch.randn(count, 2)


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    generator = nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.2), nn.Linear(16, 2)
    )
    critic = nn.Sequential(
        spectral_norm(nn.Linear(2, 16)), nn.LeakyReLU(0.2), spectral_norm(nn.Linear(16, 1))
    )
    for_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    judge = nn.BCEWithLogitsLoss()
    real, fake = torch.ones(16, 1), torch.zeros(16, 1)
    for step in range(4):
        made = generator(torch.randn(16, 4))

        for_critic.zero_grad()
        loss_of_real = judge(critic(ring(16)), real)
        loss_of_real.backward()
        loss_of_fake = judge(critic(made.detach()), fake)
        loss_of_fake.backward()
        for_critic.step()

        for_generator.zero_grad()
        loss = judge(critic(made), real)
        loss.backward(inputs=list(generator.parameters()))
        for_generator.step()
        print(f"step {step}: {loss_of_real.item():.4f} {loss_of_fake.item():.4f} {loss.item():.4f}")


if __name__ == "__main__":
    main()
