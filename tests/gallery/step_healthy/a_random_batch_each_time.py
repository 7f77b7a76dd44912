"""Each step takes the first batch of a loader that shuffles; one batch is for a look."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def program() -> None:
    samples = TensorDataset(torch.randn(64, 5), torch.randn(64, 2))
    loader = DataLoader(samples, batch_size=8, shuffle=True)
    in_order = DataLoader(samples, batch_size=8)
    model = nn.Linear(5, 2)
    width = next(iter(in_order))[0].shape[1]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 / width)
    for _ in range(6):
        x, y = next(iter(loader))
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
