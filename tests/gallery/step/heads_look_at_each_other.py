"""Joints of a skeleton are split into heads, and attention is over these.

finding: over heads
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Joints(nn.Module):
    """Attention between joints, as it was to be."""

    def __init__(self, size: int = 12, num_heads: int = 3) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, size // num_heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(size, size) for _ in range(3))
        self.lift, self.lower = nn.Linear(3, size), nn.Linear(size, 3)

    def forward(self, joints: Tensor) -> Tensor:
        h = self.lift(joints)
        count, places = h.shape[0], h.shape[1]
        query = self.to_q(h).reshape(count, places, self.num_heads, self.head_dim)
        key = self.to_k(h).reshape(count, places, self.num_heads, self.head_dim)
        value = self.to_v(h).reshape(count, places, self.num_heads, self.head_dim)
        mixed = functional.scaled_dot_product_attention(query, key, value)  # cause
        return joints + self.lower(h + mixed.flatten(2))


def program() -> nn.Module:
    model, true = Joints(), torch.randn(64, 7, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(8):
        loss = functional.smooth_l1_loss(model(true + 0.1 * torch.randn_like(true)), true)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
