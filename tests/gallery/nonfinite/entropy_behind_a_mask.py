"""The entropy of choices some of which a mask of -inf leaves out: 0 * -inf.

pattern: 0 * -inf of a mask
node: MulBackward0
remedy: masked_fill
"""

import torch
from torch import Tensor, nn


class Policy(nn.Module):
    """Logarithms of the probabilities of moves, of which one is not allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        allowed = torch.tensor([True, True, False])
        return torch.log_softmax(torch.where(allowed, self.head(x), -torch.inf), -1)


def program() -> None:
    """A bonus for exploring."""
    logs = Policy()(torch.randn(5, 4))
    entropy = -(logs.exp() * logs).sum(-1)  # cause
    entropy.mean().backward()


if __name__ == "__main__":
    program()
