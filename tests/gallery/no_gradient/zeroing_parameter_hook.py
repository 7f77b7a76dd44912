"""A hook that keeps the padding's row of an embedding fixed zeroes the whole gradient in place.

gradient: zero
cause: hook
parameter: embedding.weight
"""

import torch
from torch import Tensor, nn


def keep_padding(gradient: Tensor) -> Tensor:
    """Meant for the first row only."""
    fixed = gradient.clone()
    fixed[0:] = 0
    return fixed


class Bag(nn.Module):
    """The mean of word vectors, classified."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.embedding.weight.register_hook(keep_padding)
        self.classify = nn.Linear(4, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.classify(self.embedding(tokens).mean(1))


def program() -> nn.Module:
    """One training step."""
    model = Bag()
    scores = model(torch.randint(10, (3, 5)))
    nn.functional.cross_entropy(scores, torch.tensor([0, 1, 1])).backward()
    return model


if __name__ == "__main__":
    program()
