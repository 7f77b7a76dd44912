"""The generator's adversarial term is computed of detached samples: only its other term trains it.

finding: wasted term
"""

import torch
from torch import nn
from torch.nn import functional as F


def program() -> None:
    generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    for_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    for_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(5):
        noise, real = torch.randn(32, 4), torch.randn(32, 2)
        samples = generator(noise)
        on_samples, on_real = critic(samples.detach()), critic(real)
        ones = torch.ones_like(on_real)
        loss = F.binary_cross_entropy_with_logits(on_real, ones)
        loss = loss + F.binary_cross_entropy_with_logits(on_samples, torch.zeros_like(ones))
        for_critic.zero_grad()
        loss.backward()
        for_critic.step()
        on_samples = critic(samples.detach())  # cause
        loss = F.binary_cross_entropy_with_logits(on_samples, ones) + F.l1_loss(samples, real)
        for_generator.zero_grad()
        loss.backward()
        for_generator.step()
