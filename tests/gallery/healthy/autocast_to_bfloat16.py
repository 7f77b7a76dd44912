"""Autocast to bfloat16, with a loss scaled by a million, which bfloat16 can hold."""

import torch
from torch import nn


def program() -> None:
    """A training step."""
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(torch.randn(6, 4))
    loss = nn.functional.cross_entropy(out.float(), torch.randint(3, (6,)))
    (loss * 1e6).backward()


if __name__ == "__main__":
    program()
