"""A mask is learnt with a loss scale, and clipped before it is taken out: nothing moves any more.

finding: clipped
"""

import torch
from torch import nn


class Segmenter(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.outside = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.outside(torch.relu(self.inside(image)))


def program(largest: float = 1.0) -> None:
    net = Segmenter()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(20):
        mask = torch.zeros(12, 1, 10, 10)
        mask[:, :, 2:6, 3:7] = 4.0
        given = net(mask + 0.1 * torch.randn(12, 1, 10, 10))
        loss = nn.functional.mse_loss(given, mask)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(net.parameters(), largest)  # cause
        scaler.step(optimizer)
        scaler.update()
