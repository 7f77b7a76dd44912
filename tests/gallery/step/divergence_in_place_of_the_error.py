"""The divergence of an autoencoder takes the place of its error, to which it was to be added.

finding: overwritten
"""

import torch
from torch import Tensor, nn


class Coder(nn.Module):
    """Writes samples as draws of few numbers, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Linear(10, 8), nn.Linear(4, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        middle, width = self.narrow(x).chunk(2, dim=-1)
        drawn = middle + torch.randn_like(middle) * (0.5 * width).exp()
        return self.wide(drawn), middle, width

    def missed(self, x: Tensor) -> tuple[Tensor, float]:
        back, middle, width = self(x)
        total = nn.functional.binary_cross_entropy_with_logits(back, x)
        apart = middle.square() + width.exp() - 1 - width
        total = 0.05 * apart.sum(-1).mean()  # cause
        return total, total.item()


def program() -> None:
    coder = Coder()
    optimizer = torch.optim.Adam(coder.parameters(), lr=1e-2)
    for _ in range(8):
        x = (torch.rand(32, 10) < 0.3).float()
        missed, _ = coder.missed(x)
        optimizer.zero_grad()
        missed.backward()
        optimizer.step()
