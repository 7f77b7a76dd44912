"""Both are unscaled before they are clipped together; one is fused, and divides by the scale."""

import torch
from torch import nn


def program() -> None:
    trunk, head = nn.Linear(8, 16), nn.Linear(16, 3)
    of_trunk = torch.optim.SGD(trunk.parameters(), lr=0.1)
    of_head = torch.optim.SGD(head.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(8):
        x = torch.randn(32, 8)
        loss = nn.functional.cross_entropy(head(trunk(x).tanh()), x[:, :3].argmax(1))
        of_trunk.zero_grad()
        of_head.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(of_trunk)
        scaler.unscale_(of_head)
        nn.utils.clip_grad_norm_([*trunk.parameters(), *head.parameters()], 0.1)
        scaler.step(of_trunk)
        scaler.step(of_head)
        scaler.update()
    of_all = torch.optim.Adam([*trunk.parameters(), *head.parameters()], lr=1e-3, fused=True)
    for _ in range(8):
        x = torch.randn(32, 8)
        loss = nn.functional.cross_entropy(head(trunk(x).tanh()), x[:, :3].argmax(1))
        of_all.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(of_all)
        scaler.update()
