"""A net gets a new layer in each stage, with a spectral norm of its own."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


def program() -> None:
    layers = nn.ModuleList([spectral_norm(nn.Linear(8, 8))])
    head = nn.Linear(8, 1)
    for _stage in range(8):
        optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=1e-2)
        for _step in range(3):
            x = torch.randn(32, 8)
            y = x
            for layer in layers:
                y = torch.tanh(layer(y))
            loss = (head(y).squeeze(1) - x[:, 0]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        layers.append(spectral_norm(nn.Linear(8, 8)))
