"""An embedding is replaced by a larger one from time to time, and the optimizer keeps the old ones.

finding: left in groups
"""

import torch
from torch import nn


class Tagger(nn.Module):
    """An embedding and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(10, 6), nn.Linear(6, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.embed(words).mean(1))


def widen(model: Tagger, optimizer: torch.optim.Optimizer, size: int) -> None:
    old = model.embed
    model.embed = nn.Embedding(size, 6)
    with torch.no_grad():
        model.embed.weight[: old.num_embeddings] = old.weight
    optimizer.add_param_group({"params": model.embed.parameters()})  # cause


def program() -> None:
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(12):
        if step and step % 3 == 0:
            widen(model, optimizer, 10 + step)
        words = torch.randint(0, 10, (8, 4))
        loss = nn.functional.cross_entropy(model(words), words[:, 0] % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
