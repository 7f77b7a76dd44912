"""Batch norms are put into evaluation mode from the third epoch on."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def freeze_bn(net: nn.Module) -> None:
        for m in net.modules():
            if isinstance(m, nn.BatchNorm1d):
                m.eval()

    def validate() -> float:
        model.eval()
        with torch.no_grad():
            x = torch.randn(64, 8)
            return float((model(x).squeeze(1) - x[:, 0]).square().mean())

    for epoch in range(6):
        model.train()
        if epoch >= 2:
            freeze_bn(model)
        for _batch in range(8):
            x = torch.randn(32, 8)
            loss = (model(x).squeeze(1) - x[:, 0]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
