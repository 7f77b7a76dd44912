"""Scores are filled after a product with their mask, weights are masked after a softmax, and more.

Rows of padding are multiplied away, as their loss is not counted; brightness, which is often 0,
is multiplied by a trained weight.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Looks(nn.Module):
    """Several ways in which a mask may meet a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(6, 6), nn.Linear(6, 6)
        self.gain = nn.Parameter(torch.ones(9))
        self.out = nn.Linear(6, 4)

    def forward(self, h: Tensor, kept: Tensor) -> Tensor:
        scores = self.query(h) @ self.key(h).transpose(1, 2)
        mask = kept[:, None, :].float()
        filled = (scores * mask).masked_fill(mask == 0, -1e9).softmax(-1)
        added = (scores * mask + (1 - mask) * -1e9).softmax(-1)
        after = scores.softmax(-1) * mask
        after = after / after.sum(-1, keepdim=True)
        twice = (scores * mask).softmax(-1) * mask
        after = after + twice / (twice.sum(-1, keepdim=True) + 1e-13)
        rows = (scores * kept[:, :, None].float()).softmax(-1)
        bright = functional.relu(h[..., 0])
        light = (bright * self.gain).softmax(-1)[:, None, :]
        return self.out((filled + added + after + rows + light) @ h)


def program() -> nn.Module:
    model, h = Looks(), torch.randn(16, 9, 6)
    kept = torch.arange(9) < torch.randint(3, 10, (16, 1))
    labels = torch.randint(4, (16, 9))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        loss = functional.cross_entropy(model(h, kept)[kept], labels[kept])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
