"""Attention drops a tenth of its weights in evaluation mode as well.

finding: always drops
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Mix(nn.Module):
    """Attention over a series."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        seen = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)  # cause
        return x + self.out(seen.squeeze(1))


def program() -> None:
    net = Mix()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(4):
        x = torch.randn(4, 6, 8)
        optimizer.zero_grad()
        (net(x) - x.roll(-1, 1)).square().mean().backward()
        optimizer.step()
    net.eval()
    with torch.inference_mode():
        net(torch.randn(1, 6, 8))
