"""A checkpoint around a sigmoid that is 0, whose log is multiplied with targets of 0.

pattern: log of zero
node: LogBackward0
remedy: logsigmoid
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Classifier(nn.Module):
    """Probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        p: Tensor = checkpoint(self._probability, x, use_reentrant=False)
        return p

    def _probability(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.head(x))


def program() -> None:
    """A training step."""
    model = Classifier()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.0, 500.0, -500.0]))
    p = model(torch.randn(5, 4))
    y = torch.tensor([1.0, 1.0, 0.0])
    loss = y * torch.log(p)  # cause
    loss.mean().neg().backward()


if __name__ == "__main__":
    program()
