"""A row that is masked as a whole, in fused attention, which gives 0 for it."""

import torch
from torch import Tensor, nn


class Fused(nn.Module):
    """scaled_dot_product_attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor, is_seen: Tensor) -> Tensor:
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=is_seen)


def program() -> None:
    """A training step; the first token sees nothing."""
    model = Fused()
    is_seen = torch.ones(4, 4, dtype=torch.bool).tril(-1)
    model(torch.randn(2, 4, 8), is_seen).pow(2).mean().backward()


if __name__ == "__main__":
    program()
