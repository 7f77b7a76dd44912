"""A causal mask is multiplied into scores, so that later tokens have the score 0.

finding: zero scores
"""

import torch
from torch import Tensor, nn


class Reader(nn.Module):
    """One head of attention over bytes."""

    past: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 12)
        self.query, self.key = nn.Linear(12, 12), nn.Linear(12, 12)
        self.out = nn.Linear(12, 16)
        self.register_buffer("past", torch.ones(7, 7).tril().bool())

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.embed(tokens)
        scores = torch.einsum("btd,bsd->bts", self.query(h), self.key(h))
        scores *= self.past  # cause
        weights = torch.softmax(scores / 12**0.5, dim=2)
        return self.out(weights @ h)


def program() -> nn.Module:
    model, tokens = Reader(), torch.randint(16, (20, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
