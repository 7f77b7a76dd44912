"""A log-likelihood is minimised: it falls faster and faster, for ever.

finding: falls
"""

import torch
from torch import nn


def program() -> None:
    flow = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(flow.parameters(), lr=0.05)
    x = torch.randn(64, 2)
    for _ in range(60):
        loss = torch.distributions.Normal(flow(x), 1.0).log_prob(x).mean()  # cause
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
