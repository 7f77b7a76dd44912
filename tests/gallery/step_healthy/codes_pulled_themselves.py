"""A codebook of which both terms are right: of the codes, and of what was encoded."""

import torch
from torch import nn
from torch.nn import functional as F


def program() -> None:
    encoder, decoder, codebook = nn.Linear(6, 4), nn.Linear(4, 6), nn.Embedding(8, 4)
    frozen = nn.Linear(4, 4)
    parts = nn.ModuleList([encoder, decoder, codebook])
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-2)
    for _ in range(6):
        x = torch.randn(32, 6)
        z = encoder(x)
        codes = codebook(torch.cdist(z, codebook.weight).argmin(-1))
        quantised = z + (codes - z).detach()
        loss = F.mse_loss(codes, z.detach()) + 0.25 * F.mse_loss(z, codes.detach())
        loss = loss + F.mse_loss(decoder(quantised), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    frozen.load_state_dict(frozen.state_dict())
