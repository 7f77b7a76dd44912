"""An LSTM over a padded batch."""

import torch
from torch import Tensor, nn


class Tagger(nn.Module):
    """Tags of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6, padding_idx=0)
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embed(tokens))
        out: Tensor = self.head(states)
        return out


def program() -> None:
    """A training step."""
    model = Tagger()
    tokens = torch.tensor([[3, 4, 5, 0], [6, 7, 0, 0]])
    tags = torch.tensor([[0, 1, 2, -100], [3, 3, -100, -100]])
    loss = nn.functional.cross_entropy(model(tokens).transpose(1, 2), tags, ignore_index=-100)
    loss.backward()


if __name__ == "__main__":
    program()
