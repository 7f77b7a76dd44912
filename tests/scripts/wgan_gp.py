"""A Wasserstein GAN with gradient penalty: the loss contains a gradient, so backward goes twice."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def penalty(critic: nn.Module, real: Tensor, made: Tensor) -> Tensor:
    """How far the critic's slope between real and made points is from 1."""
    share = torch.rand(len(real), 1)
    between = (share * real + (1 - share) * made).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (slope.pow(2).sum(1).sqrt() - 1).pow(2).mean()


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    critic = nn.Sequential(
        nn.Linear(2, 16),
        nn.LayerNorm(16),
        nn.SiLU(),
        nn.Linear(16, 16),
        nn.SiLU(),
        nn.Linear(16, 1),
    )
    for_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    for_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for step in range(2):
        for _ in range(3):
            real = torch.randn(16, 2) * 0.5 + 1
            made = generator(torch.randn(16, 4)).detach()
            loss = critic(made).mean() - critic(real).mean() + 10 * penalty(critic, real, made)
            for_critic.zero_grad()
            loss.backward()
            for_critic.step()
        for_generator.zero_grad()
        (-critic(generator(torch.randn(16, 4))).mean()).backward()
        for_generator.step()
        print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
