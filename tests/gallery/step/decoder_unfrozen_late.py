"""The decoder is unfrozen at epoch 2; the optimizer was given what required a gradient.

finding: unfrozen
"""

import torch
from torch import nn


def program() -> None:
    decoder, probe = nn.Linear(6, 6), nn.Linear(6, 2)
    decoder.requires_grad_(False)
    wanted = [p for p in (*decoder.parameters(), *probe.parameters()) if p.requires_grad]
    optimizer = torch.optim.Adam(wanted, lr=1e-3)  # cause
    for epoch in range(6):
        if epoch == 2:
            decoder.requires_grad_(True)
        logits = probe(decoder(torch.randn(10, 6)).relu())
        loss = nn.functional.cross_entropy(logits, torch.randint(2, (10,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
