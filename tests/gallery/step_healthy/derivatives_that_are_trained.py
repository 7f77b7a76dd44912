"""Derivatives of an input in a loss: with a graph, as a target of another network, as a step."""

import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn import functional as F


class Potential(nn.Module):
    """Energy of particles by their distances from the middle, and the forces on them."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, places: Tensor) -> tuple[Tensor, Tensor]:
        places = places.detach().requires_grad_()
        energy = self.body(places.square().sum(-1, keepdim=True)).sum((1, 2))
        (slope,) = grad(energy.sum(), places, create_graph=self.training)
        return energy, -slope


def fitted() -> None:
    potential = Potential()
    optimizer = torch.optim.Adam(potential.parameters(), lr=1e-2)
    for _ in range(6):
        places = torch.randn(6, 5, 3)
        energy, forces = potential(places)
        loss = (energy - places.square().sum((1, 2))).abs().mean()
        loss += 0.3 * (forces + 2 * places).norm(dim=-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def taught() -> None:
    field, teacher = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
    for _ in range(6):
        x = torch.randn(32, 3, requires_grad=True)
        (slope,) = grad(teacher(x).sum(), x)
        optimizer.zero_grad()
        (field(x.detach()) - slope).square().mean().backward()
        optimizer.step()


def attacked() -> None:
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(6):
        x = torch.randn(24, 6, requires_grad=True)
        labels = x[:, :3].argmax(1)
        clean = F.cross_entropy(net(x), labels)
        (slope,) = grad(clean, x, retain_graph=True)
        loss = clean + 0.5 * F.cross_entropy(net(x + 0.1 * slope.sign()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def balanced() -> None:
    trunk, first, second = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 1)
    parts = (trunk, first, second)
    optimizer = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.01)
    for _ in range(6):
        x = torch.randn(16, 4)
        hidden = trunk(x).tanh()
        one, other = (part(hidden).square().mean() for part in (first, second))
        slopes = [grad(each, trunk.weight, retain_graph=True)[0] for each in (one, other)]
        share = slopes[0].norm() / (slopes[1].norm() + 1e-4)
        weighed = share * other + 1e-3
        optimizer.zero_grad()
        (one + weighed).backward()
        optimizer.step()


def program() -> None:
    fitted()
    balanced()
    taught()
    attacked()
