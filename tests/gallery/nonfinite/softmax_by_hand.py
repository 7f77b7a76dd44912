"""A softmax by hand overflows: inf / inf is NaN.

pattern: overflow of exp
node: DivBackward0
op: torch.exp
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Gate(nn.Module):
    """Mixing weights."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        raised = torch.exp(self.score(x) * 50)  # cause
        return raised / raised.sum(-1, keepdim=True)


def program() -> None:
    """A training step."""
    model = Gate()
    with torch.no_grad():
        model.score.bias[0] = 4.0
    model(torch.randn(5, 4))[:, 1].mean().backward()


if __name__ == "__main__":
    program()
