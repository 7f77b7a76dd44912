"""The trunk's gradients are unscaled, the head's are not when all are clipped together.

finding: clipped
"""

import torch
from torch import nn


def program() -> None:
    trunk, head = nn.Linear(8, 16), nn.Linear(16, 3)
    of_trunk = torch.optim.AdamW(trunk.parameters(), lr=1e-3)
    of_head = torch.optim.SGD(head.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(8):
        x = torch.randn(32, 8)
        loss = nn.functional.cross_entropy(head(trunk(x).tanh()), x[:, :3].argmax(1))
        of_trunk.zero_grad()
        of_head.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(of_trunk)
        everything = [*trunk.parameters(), *head.parameters()]
        torch.nn.utils.clip_grad_norm_(everything, 0.5)  # cause
        scaler.step(of_trunk)
        scaler.step(of_head)
        scaler.update()
