"""An embedding's weight, which the similarity saved, is normalised in place before backward.

error: modified by an inplace operation
node: MmBackward0
saved: mat2
parameter: embed.weight
"""

import torch
from torch import Tensor, nn


class Similar(nn.Module):
    """Scores all words by their similarity with a few."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)

    def forward(self, words: Tensor) -> Tensor:
        return self.embed(words) @ self.embed.weight.t()


def program() -> None:
    """One training step that keeps the weights on the unit sphere."""
    torch.manual_seed(0)
    model = Similar()
    scores = model(torch.tensor([1, 2, 7]))
    loss = nn.functional.cross_entropy(scores, torch.tensor([2, 3, 8]))
    with torch.no_grad():
        model.embed.weight.div_(model.embed.weight.norm(dim=1, keepdim=True))  # cause
    loss.backward()


if __name__ == "__main__":
    program()
