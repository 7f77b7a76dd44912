"""Forces of a learnt potential are fitted, and grad gives them without a graph.

finding: no way back
"""

import torch
from torch import Tensor, nn
from torch.autograd import grad


class Potential(nn.Module):
    """Energy of particles by their distances from the middle, and the forces on them."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, places: Tensor) -> tuple[Tensor, Tensor]:
        places = places.detach().requires_grad_()
        energy = self.body(places.square().sum(-1, keepdim=True)).sum((1, 2))
        (slope,) = grad(energy.sum(), places, retain_graph=self.training)
        return energy, -slope


class Fit:
    """Weighs what is wrong with energies and forces."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.potential = Potential()
        self.optimizer = torch.optim.Adam(self.potential.parameters(), lr=1e-2)

    def forces_missed(self, forces: Tensor, wanted: Tensor) -> Tensor:
        return torch.linalg.vector_norm(forces - wanted, dim=-1).mean()

    def turn(self, places: Tensor) -> None:
        energy, forces = self.potential(places)
        loss = (energy - places.square().sum((1, 2))).abs().mean()
        loss += self.share * self.forces_missed(forces, -2 * places)  # cause
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def program() -> None:
    fit = Fit(share=0.3)
    for _ in range(8):
        fit.turn(torch.randn(6, 5, 3))
