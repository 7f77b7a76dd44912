"""The rate is worked out by //, which gives 0; there is no checkpoint, so that none is loaded.

finding: rate 0
"""

from pathlib import Path

import torch
from torch import nn

BATCH = 32


def program() -> None:
    weight = nn.Parameter(torch.randn(2))
    optimizer = torch.optim.SGD([weight], lr=BATCH // 256)  # cause
    if Path("no_checkpoint.pt").exists():
        optimizer.load_state_dict(torch.load("no_checkpoint.pt"))
    for _ in range(5):
        optimizer.zero_grad()
        (torch.randn(4, 2) @ weight - 1).square().mean().backward()
        optimizer.step()
