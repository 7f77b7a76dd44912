"""The parameters are an iterator, which the optimizer has used up before they are clipped.

finding: not clipped
"""

import warnings

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
    weights = (p for p in model.parameters() if p.requires_grad)
    optimizer = torch.optim.SGD(weights, lr=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            x = torch.randn(32, 6)
            loss = (30 * model(x) - 50 * x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)  # cause
            optimizer.step()
