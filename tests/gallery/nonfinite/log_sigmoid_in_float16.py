"""In float16 a sigmoid of -20 is 0 already, and its log -inf.

pattern: log of zero
node: LogBackward0
remedy: logsigmoid
"""

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3, dtype=torch.float16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.head(x))


def program() -> None:
    """A training step with targets of 0 and 1."""
    model = Classifier()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.0, 2.0, -20.0]))
    p = model(torch.randn(5, 4, dtype=torch.float16))
    y = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float16)
    (-y * p.log()).sum().backward()  # cause


if __name__ == "__main__":
    program()
