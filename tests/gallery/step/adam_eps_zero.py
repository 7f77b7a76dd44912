"""eps is 0: Adam divides 0 by 0 where a gradient has been 0 from the start.

finding: spoilt
"""

import torch
from torch import nn


def program() -> None:
    embedding, out = nn.Embedding(50, 4), nn.Linear(4, 2)
    held = [*embedding.parameters(), *out.parameters()]
    optimizer = torch.optim.Adam(held, lr=1e-3, eps=0.0)
    for step in range(3):
        tokens = torch.arange(step * 10, step * 10 + 10)
        loss = nn.functional.cross_entropy(out(embedding(tokens)), torch.randint(2, (10,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # cause
