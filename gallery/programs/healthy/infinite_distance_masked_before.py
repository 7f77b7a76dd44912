import torch
from torch import nn

torch.manual_seed(0)
points = nn.Parameter(torch.randn(6, 2))
optimizer = torch.optim.Adam([points], lr=0.05)
edges = torch.combinations(torch.arange(6))
wanted = torch.rand(len(edges)) + 0.5
wanted[::4] = float("inf")  # unknown
known = wanted.isfinite()
for _ in range(3):
    a, b = points[edges[known]].unbind(1)
    stress = ((a - b).norm(dim=1) - wanted[known]).square().mean()
    optimizer.zero_grad()
    stress.backward()
    optimizer.step()
print("finite", bool(points.isfinite().all()))
