"""Embeddings of images and texts are divided by the norm of all of them, for want of a dimension.

finding: whole batch
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Tower(nn.Module):
    """Embeds one kind of input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        z = self.net(x)
        return z / z.norm()  # cause


def program() -> None:
    image, text = Tower(12), Tower(6)
    optimizer = torch.optim.AdamW([*image.parameters(), *text.parameters()], lr=1e-3)
    for _ in range(6):
        z = torch.randn(16, 6)
        logits = 14 * image(torch.cat([z, z.square()], 1)) @ text(z).t()
        loss = F.cross_entropy(logits, torch.arange(16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
