"""Norms, deviations and angles at 0 where torch's own derivatives are finite."""

import torch
from torch import nn


def program() -> None:
    """A training step with an empty sample."""
    embed = nn.Linear(4, 3, bias=False)
    x = torch.randn(5, 4)
    x[2] = 0
    y = embed(x)
    lengths = torch.linalg.vector_norm(y, dim=-1)
    deviations = y.std(-1)
    angles = torch.atan2(y[:, 0], y[:, 1])
    directions = nn.functional.normalize(y, dim=-1)
    (lengths.sum() + deviations.sum() + angles.sum() + directions.sum()).backward()


if __name__ == "__main__":
    program()
