"""Binary cross entropy by hand, of probabilities that sigmoid rounded to 0.

pattern: log of zero
node: LogBackward0
remedy: binary_cross_entropy_with_logits
"""

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.head(x))


def program() -> None:
    """A training step in which the model is sure, and right."""
    model = Classifier()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.0, 500.0, -500.0]))
    p = model(torch.randn(5, 4))
    y = torch.tensor([1.0, 1.0, 0.0]).expand(5, 3)
    loss = -(y * torch.log(p) + (1 - y) * torch.log1p(-p * 0.5))  # cause
    loss.mean().backward()


if __name__ == "__main__":
    program()
