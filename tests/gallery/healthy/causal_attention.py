"""A causal mask of -inf: every row keeps one entry."""

import torch
from torch import Tensor, nn


class Head(nn.Module):
    """One head of causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)
        return torch.softmax(q @ k.transpose(-2, -1) / 8**0.5 + mask, -1) @ v


def program() -> None:
    """A training step."""
    model = Head()
    model(torch.randn(2, 5, 8)).pow(2).mean().backward()


if __name__ == "__main__":
    program()
