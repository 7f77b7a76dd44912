"""torch.where guards the log, and the targets are 0 in just those places.

pattern: 0 * inf behind torch.where
node: LogBackward0
remedy: torch.where(ok, x, 1.0)
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
    """A training step."""
    model = Classifier()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.0, 500.0, -500.0]))
    p = model(torch.randn(5, 4))
    y = torch.tensor([1.0, 1.0, 0.0]).expand(5, 3)
    logs = torch.log(p)  # cause
    loss = -y * torch.where(y > 0, logs, torch.zeros_like(logs))
    loss.mean().backward()


if __name__ == "__main__":
    program()
