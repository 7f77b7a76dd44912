"""An encoder is made for [steps, samples, features], and is given those."""

import torch
from torch import Tensor, nn


class _Sentences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        encoded = self.encoder(self.words(tokens).transpose(0, 1)).transpose(0, 1)
        found: Tensor = self.head(encoded[:, 0])
        return found


def program() -> None:
    model = _Sentences()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(8):
        tokens = torch.randint(20, (16, 6))
        loss = nn.functional.cross_entropy(model(tokens), (tokens[:, 1] > 9).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
