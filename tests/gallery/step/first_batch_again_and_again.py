"""Each step asks the loader for a new iterator, and takes its first batch.

finding: first batch
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def program() -> None:
    samples = TensorDataset(torch.randn(64, 5), torch.randn(64, 2))
    loader = DataLoader(samples, batch_size=8)
    model = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        x, y = next(iter(loader))  # cause
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
