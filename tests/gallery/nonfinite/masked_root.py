"""A distance of 0 times a mask: the root is finite there, its derivative is not.

pattern: 0 * inf behind a mask
node: SqrtBackward0
remedy: torch.where(ok
"""

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Distances."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(self.head(x))


def program() -> None:
    """A training step with padding."""
    model = Classifier()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.0, 0.0, -500.0]))
    p = model(torch.randn(5, 4))
    is_token = torch.tensor([1.0, 1.0, 0.0])
    loss = torch.sqrt(p) * is_token  # cause
    loss.mean().backward()


if __name__ == "__main__":
    program()
