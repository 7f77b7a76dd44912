"""A Normal is given the logarithm of its scale.

finding: log for scale
"""

import torch
from torch import Tensor, nn


class _Codes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.loc, self.log_sigma, self.back = nn.Linear(6, 2), nn.Linear(6, 2), nn.Linear(2, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        loc, log_sigma = self.loc(x), self.log_sigma(x)
        q = torch.distributions.Normal(loc, log_sigma)  # cause
        p = torch.distributions.Normal(torch.zeros_like(loc), torch.ones_like(loc))
        return self.back(q.rsample()), torch.distributions.kl_divergence(q, p).sum(1).mean()


def program() -> None:
    model = _Codes()
    nn.init.ones_(model.log_sigma.bias)
    nn.init.zeros_(model.log_sigma.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(8):
        x = torch.rand(16, 6)
        out, divergence = model(x)
        loss = (out - x).square().sum(1).mean() + 0.1 * divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
