"""One of two optimizers steps by itself, on gradients that are still scaled.

finding: still scaled
"""

import torch
from torch import nn


def program() -> None:
    trunk, head = nn.Linear(8, 16), nn.Linear(16, 3)
    of_trunk = torch.optim.AdamW(trunk.parameters(), lr=1e-3)
    of_head = torch.optim.Adam(head.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(8):
        x = torch.randn(32, 8)
        loss = nn.functional.cross_entropy(head(trunk(x).tanh()), x[:, :3].argmax(1))
        of_trunk.zero_grad()
        of_head.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(of_trunk)
        of_head.step()  # cause
        scaler.update()
