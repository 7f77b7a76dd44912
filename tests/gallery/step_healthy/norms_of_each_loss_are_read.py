"""The first loss goes backward to weigh both by; the step follows both, at points with slopes."""

import torch
from torch import Tensor, nn


def norm(net: nn.Module) -> Tensor:
    return torch.stack([p.grad.norm() for p in net.parameters() if p.grad is not None]).norm()


def program() -> list[Tensor]:
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    slopes = []
    for _ in range(6):
        ends = torch.tensor([[0.0], [1.0]])
        optimizer.zero_grad()
        net(ends).square().mean().backward()
        weight = 1 / (norm(net) + 1)
        optimizer.zero_grad()
        points = torch.rand(16, 1).requires_grad_()
        (slope,) = torch.autograd.grad(net(points).sum(), points, create_graph=True)
        loss = (slope - points.detach().cos()).square().mean()
        (loss + weight * net(ends).square().mean()).backward()
        assert points.grad is not None
        slopes.append(points.grad.mean())
        optimizer.step()
    return slopes
