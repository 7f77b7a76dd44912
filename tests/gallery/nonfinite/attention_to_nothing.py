"""Attention in which all keys of one query are masked: softmax of a row of -inf.

pattern: softmax of a row of -inf
node: BmmBackward0
op: torch.softmax
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """One head, with padding masked."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def forward(self, x: Tensor, is_padding: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-2, -1) / 2
        scores = scores.masked_fill(is_padding[:, None, :], float("-inf"))
        weights = torch.softmax(scores, -1)  # cause
        return weights @ v


def program() -> None:
    """A training step with an empty sequence in the batch; its output is not looked at."""
    model = Attention()
    is_padding = torch.tensor([[False, False, True], [True, True, True]])
    out = model(torch.randn(2, 3, 4), is_padding)
    out[0].pow(2).mean().backward()


if __name__ == "__main__":
    program()
