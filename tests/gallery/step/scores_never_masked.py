"""Scores of padded places are masked in a tensor that nobody takes.

finding: unused result
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Pooling(nn.Module):
    """Averages tokens by learnt weights."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.head = nn.Linear(6, 1), nn.Linear(6, 2)

    def forward(self, tokens: Tensor, is_padding: Tensor) -> Tensor:
        scores = self.score(tokens).squeeze(-1)
        scores.masked_fill(is_padding, -1e9)  # cause
        out: Tensor = self.head((scores.softmax(-1).unsqueeze(-1) * tokens).sum(1))
        return out


def program() -> None:
    model = Pooling()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        tokens, is_padding = torch.randn(12, 7, 6), torch.rand(12, 7) > 0.7
        loss = functional.cross_entropy(model(tokens, is_padding), torch.randint(0, 2, (12,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
