"""A validation after each round leaves the model in evaluation mode, and its dropout off.

finding: mode
"""

import torch
from torch import Tensor, nn


class Reader(nn.Module):
    """Says of which kind a sentence is."""

    def __init__(self, words: int, kinds: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 12)
        self.spared = nn.Dropout(0.3)
        self.kinds = nn.Linear(12, kinds)

    def forward(self, sentence: Tensor) -> Tensor:
        return self.kinds(self.spared(self.words(sentence).mean(1)))


class Rounds:
    """Trains on sentences, and counts after each round how many are known."""

    def __init__(self) -> None:
        self.sentences = torch.randint(0, 40, (60, 7))
        self.kinds = self.sentences[:, 0] % 3
        self.reader = Reader(40, 3)
        self.optimizer = torch.optim.AdamW(self.reader.parameters(), lr=1e-2)

    @torch.no_grad()
    def known(self) -> float:
        self.reader.eval()  # cause
        return (
            (self.reader(self.sentences[48:]).argmax(-1) == self.kinds[48:]).float().mean().item()
        )

    def learn(self, rows: slice) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        scores = self.reader(self.sentences[rows])
        nn.functional.cross_entropy(scores, self.kinds[rows]).backward()
        self.optimizer.step()


def program() -> None:
    rounds = Rounds()
    rounds.reader.train()
    for _ in range(4):
        for start in range(0, 48, 12):
            rounds.learn(slice(start, start + 12))
        rounds.known()
