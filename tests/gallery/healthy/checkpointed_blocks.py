"""Checkpointed blocks, one of them reentrant."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def program() -> None:
    """A training step that recomputes."""
    blocks = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)]
    x = blocks[0](torch.randn(5, 4))
    x = checkpoint(blocks[1], x, use_reentrant=True)
    x = checkpoint(blocks[2], x, use_reentrant=False)
    x.pow(2).mean().backward()


if __name__ == "__main__":
    program()
