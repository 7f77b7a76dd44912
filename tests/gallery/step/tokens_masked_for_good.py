"""Tokens are masked in place in a slice of the corpus: each epoch masks further ones.

finding: data written
"""

import torch
from torch import Tensor, nn

BLANK = 0


class Gaps(nn.Module):
    """Guesses the tokens that are left out."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 12)
        self.mixed = nn.GRU(12, 12, batch_first=True)
        self.guess = nn.Linear(12, words)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.guess(self.mixed(self.words(tokens))[0])


def epochs(model: Gaps, corpus: Tensor, rows: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        for at in range(0, len(corpus), rows):
            tokens = corpus[at : at + rows]
            wanted = tokens.clone()
            gaps = torch.rand(tokens.shape) < 0.15
            tokens[gaps] = BLANK  # cause
            scores = model(tokens)
            loss = nn.functional.cross_entropy(scores[gaps], wanted[gaps])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def program() -> None:
    epochs(Gaps(20), torch.randint(1, 20, (24, 9)), rows=8)
