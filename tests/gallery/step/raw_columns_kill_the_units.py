"""Raw columns make the first steps so large that no unit lets anything through any more.

finding: leaps
"""

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(3)
    columns = torch.tensor([40_000.0, 9_000.0, 45.0, 650.0, 0.5])
    samples = columns * torch.rand(256, 5).exp()
    wanted = (samples[:, :1] > 68_000).float()
    network = nn.Sequential(
        nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)  # cause
    for _ in range(40):
        chosen = torch.randint(256, (32,))
        loss = nn.functional.binary_cross_entropy_with_logits(
            network(samples[chosen]), wanted[chosen]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
