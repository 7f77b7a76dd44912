"""A softmax by hand of which an entry is 0, and its log times targets.

pattern: log of zero
node: LogBackward0
remedy: amp the argument
"""

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Logits."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


def program() -> None:
    """A training step."""
    model = Classifier()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.0, 1.0, -500.0]))
    p = model(torch.randn(5, 4))
    target = torch.tensor([0.25, 0.75, 0.0])
    e = p.exp()
    loss = target * torch.log(e / e.sum(-1, keepdim=True))  # cause
    loss.sum(-1).mean().neg().backward()


if __name__ == "__main__":
    program()
