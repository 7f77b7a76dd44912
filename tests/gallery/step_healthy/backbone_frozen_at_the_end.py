"""The backbone is trained first, and frozen for the last epochs."""

import torch
from torch import nn


def program() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Linear(8, 16)
            self.head = nn.Linear(16, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(self.backbone(x)))

    model = Net()
    optimizer = torch.optim.SGD(
        [
            {"params": list(model.backbone.parameters()), "lr": 0.02},
            {"params": list(model.head.parameters()), "lr": 0.05},
        ],
        lr=0.05,
    )
    for epoch in range(6):
        if epoch == 4:  # polish the head only
            for p in model.backbone.parameters():
                p.requires_grad = False
        for _batch in range(10):
            x = torch.randn(32, 8)
            loss = (model(x).squeeze(1) - x[:, 0]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
