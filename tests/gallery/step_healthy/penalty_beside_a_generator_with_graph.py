"""The penalty of a critic has a graph, and the last pass is that of a generator."""

import torch
from torch import Tensor, nn


def _slope(critic: nn.Module, real: Tensor, fake: Tensor) -> Tensor:
    share = torch.rand(len(real), 1)
    between = (share * real + (1 - share) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()


def program() -> None:
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    generator = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 4))
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    for _ in range(6):
        for _ in range(2):
            real, fake = torch.randn(16, 4), generator(torch.randn(16, 3)).detach()
            of_critic.zero_grad()
            far = critic(fake).mean() - critic(real).mean()
            loss = far + 10 * _slope(critic, real, fake)
            loss.backward()
            of_critic.step()
        of_generator.zero_grad()
        (-critic(generator(torch.randn(16, 3))).mean()).backward()
        of_generator.step()
