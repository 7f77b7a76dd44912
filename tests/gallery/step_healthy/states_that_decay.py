"""States decay by exp of something negative, are kept by gates, and grow a little for few steps."""

import torch
from torch import nn


def program() -> None:
    into, gate, out = nn.Linear(2, 6), nn.Linear(2, 6), nn.Linear(6, 1)
    rate = nn.Parameter(torch.zeros(6))
    parts = [*into.parameters(), *gate.parameters(), *out.parameters(), rate]
    optimizer = torch.optim.Adam(parts, lr=1e-3)
    for _ in range(6):
        x = torch.randn(24, 8, 2)
        decay = (-nn.functional.softplus(rate)).exp()
        state, kept, grown = (torch.zeros(8, 6) for _ in range(3))
        for moment in x:
            state = decay * state + into(moment)
            keep = gate(moment).sigmoid()
            kept = keep * kept + (1 - keep) * into(moment)
        for moment in x[:10]:
            grown = 1.05 * grown + into(moment)
        loss = (out(state + kept + 0.1 * grown) - x.sum((0, 2))[:, None]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
