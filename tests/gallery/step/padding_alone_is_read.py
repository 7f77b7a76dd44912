"""Reviews are read by an encoder whose key padding mask is True at their words.

finding: mask inverted
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

BLANK = 0


def words_of(reviews: Tensor, lengths: Tensor) -> Tensor:
    """True where a review has a word."""
    return torch.arange(reviews.size(1)).unsqueeze(0) < lengths.unsqueeze(1)


class Stars(nn.Module):
    """Guesses how many stars a review gives."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 12, padding_idx=BLANK)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(12, 2, 24, 0.0, batch_first=True) for _ in range(2)]
        )
        self.head = nn.Linear(12, 5)

    def forward(self, reviews: Tensor, lengths: Tensor) -> Tensor:
        here = words_of(reviews, lengths)
        h = self.embed(reviews)
        for layer in self.layers:
            h = layer(
                h,
                src_key_padding_mask=here,  # cause
            )
        pooled = (h * here[..., None]).sum(1) / here.sum(1, keepdim=True)
        stars: Tensor = self.head(pooled)
        return stars


def program() -> nn.Module:
    model = Stars()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(8):
        lengths = torch.randint(3, 9, (24,))
        reviews = torch.randint(1, 30, (24, 9))
        reviews[torch.arange(9) >= lengths[:, None]] = BLANK
        loss = functional.cross_entropy(model(reviews, lengths), reviews[:, 0] % 5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
