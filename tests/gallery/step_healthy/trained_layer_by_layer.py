"""Each layer is trained by itself on what those before give, and the optimizer gets it then."""

import torch
from torch import nn


def program() -> None:
    layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(5)])
    optimizer = torch.optim.SGD(layers[0].parameters(), lr=0.05)
    for last, layer in enumerate(layers):
        if last:
            optimizer.add_param_group({"params": layer.parameters()})
        for _ in range(3):
            x = torch.randn(8, 6)
            with torch.no_grad():
                hidden = x
                for before in layers[:last]:
                    hidden = before(hidden).tanh()
            optimizer.zero_grad()
            (layer(hidden) - x).square().mean().backward()
            optimizer.step()
