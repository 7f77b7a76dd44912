"""MAML: inner steps by hand on copies of the parameters, one optimizer outside."""

import torch
from torch import nn
from torch.func import functional_call


def program() -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        for _ in range(2):
            x = torch.randn(6, 2)
            own: dict[str, torch.Tensor] = dict(model.named_parameters())
            inner = (functional_call(model, own, (x,)) - x[:, :1]).square().mean()
            slopes = torch.autograd.grad(inner, list(own.values()), create_graph=True)
            own = {name: p - 0.1 * g for (name, p), g in zip(own.items(), slopes, strict=True)}
            (functional_call(model, own, (x,)) - x[:, :1]).square().mean().backward()
        optimizer.step()
