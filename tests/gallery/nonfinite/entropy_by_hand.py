"""The entropy of a policy that excludes an action: 0 * log(0).

pattern: log of zero
node: MulBackward0
remedy: log_softmax
"""

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.head(x), -1)


def program() -> None:
    """A bonus for exploring."""
    model = Classifier()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.0, 1.0, -500.0]))
    p = model(torch.randn(5, 4))
    entropy = -(p * torch.log(p)).sum(-1)  # cause
    entropy.mean().backward()


if __name__ == "__main__":
    program()
