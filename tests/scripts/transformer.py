"""A causal transformer learns to continue a text: AdamW, gradient accumulation, clipping."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

TEXT = (
    "a gradient is a promise; the engine keeps it, node by node, until the last leaf has its own. "
)
ALPHABET = sorted(set(TEXT))
CONTEXT = 24


class LanguageModel(nn.Module):
    """Predicts the next character at every position."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.token = nn.Embedding(len(ALPHABET), width)
        self.position = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(ALPHABET), bias=False)
        self.head.weight = self.token.weight  # tied

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits for ``tokens`` of shape (batch, time)."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        embedded = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        logits: Tensor = self.head(self.encoder(embedded, mask=mask, is_causal=True))
        return logits


def main() -> None:
    """Train for a number of steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    data = torch.tensor([ALPHABET.index(character) for character in TEXT * 2])
    model = LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        for _ in range(2):
            starts = torch.randint(len(TEXT), (4, 1))
            batch = data[starts + torch.arange(CONTEXT + 1)]
            logits = model(batch[:, :-1])
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1), batch[:, 1:].flatten(), label_smoothing=0.1
            )
            (loss / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
