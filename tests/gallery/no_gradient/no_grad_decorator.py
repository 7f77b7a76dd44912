"""A method decorated with no_grad, once meant for inference, is called in training too.

gradient: none
cause: no_grad
parameter: embedding.weight
parameter: position
"""

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """Tokens with positions, and a transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.position = nn.Parameter(torch.zeros(5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    @torch.no_grad()
    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens as vectors."""
        return self.embedding(tokens) + self.position  # cause

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layer(self.embed(tokens))


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randint(20, (3, 5))).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Encoder()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
