"""A contrastive loss on the distance of two embeddings that are the same.

pattern: norm at zero
node: SqrtBackward0
"""

import torch
from torch import Tensor, nn


class Siamese(nn.Module):
    """Two views of a sample, embedded by the same layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 4)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        difference = self.embed(a) - self.embed(b)
        return difference.pow(2).sum(-1).sqrt()  # cause


def program() -> None:
    """A training step; the augmentation left one sample as it was."""
    model = Siamese()
    a = torch.randn(8, 6)
    b = a + torch.randn(8, 6)
    b[3] = a[3]
    distance = model(a, b)
    torch.relu(distance - 0.5).add(0.1 * distance).mean().backward()


if __name__ == "__main__":
    program()
