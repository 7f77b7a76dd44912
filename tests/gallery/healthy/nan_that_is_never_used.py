"""Missing values are NaN in the batch, and are replaced before anything is computed of them."""

import torch
from torch import nn


def program() -> None:
    """A training step."""
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3)
    x[1, 2] = x[4, 0] = float("nan")
    is_missing = x.isnan()
    features = torch.cat([x.nan_to_num(0.0), is_missing.float()], -1)
    model(features).pow(2).mean().backward()


if __name__ == "__main__":
    program()
