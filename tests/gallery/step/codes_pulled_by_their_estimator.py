"""The codebook's loss is given the straight-through result, in which the codes are detached.

finding: codes untrained
"""

import torch
from torch import nn
from torch.nn import functional as F


class _Quantiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.codebook = nn.Embedding(8, 4)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        nearest = torch.cdist(z, self.codebook.weight).argmin(-1)
        codes = self.codebook(nearest)
        return z + (codes - z).detach()


def program() -> None:
    encoder, decoder, quantiser = nn.Linear(6, 4), nn.Linear(4, 6), _Quantiser()
    parts = nn.ModuleList([encoder, decoder, quantiser])
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-2)
    for _ in range(6):
        x = torch.randn(32, 6)
        z = encoder(x)
        quantised = quantiser(z)
        commitment = F.mse_loss(z, quantised.detach())
        to_codes = F.mse_loss(quantised, z.detach())  # cause
        loss = F.mse_loss(decoder(quantised), x) + to_codes + 0.25 * commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
