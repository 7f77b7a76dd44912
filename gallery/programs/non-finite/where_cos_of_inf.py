import math

import torch

# The smooth cutoff of an atomic environment; no neighbour is at an infinite distance.
torch.manual_seed(0)
positions = torch.randn(3, 3, requires_grad=True)
pad = torch.full((3,), math.inf)
cutoff = 2.5

distance = (positions[:, None] - positions[None]).square().sum(-1).add(1e-6).sqrt()
distance = torch.cat([distance, pad[:, None].expand(3, 1)], 1)
reach = distance * positions.abs().mean()
smooth = torch.where(reach < cutoff, 0.5 * torch.cos(reach * math.pi / cutoff) + 0.5, 0.0)  # CAUSE
energy = smooth.sum()
(force,) = torch.autograd.grad(energy, positions)
print("energy", energy.item())
print("force", force.tolist())
