"""Before each pass the gradients of the decoder are cleared, and those of the encoder are not.

finding: kept
"""

import torch
from torch import nn


def program() -> None:
    encoder, decoder = nn.Linear(7, 4), nn.Linear(4, 7)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
    for _ in range(8):
        spectra = torch.randn(10, 7)
        decoder.zero_grad()
        (decoder(torch.tanh(encoder(spectra))) - spectra).square().mean().backward()
        optimizer.step()  # cause
