"""The entropy of a distribution that is certain: 0 * log(0) is NaN in the forward.

pattern: log of zero
node: MulBackward0
op: Tensor.log
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Weights over memory slots."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.query(x), -1)


def program() -> None:
    """A step with a bonus for entropy; the query has become very sharp."""
    model = Attention()
    with torch.no_grad():
        model.query.weight.mul_(1000.0)
    weights = model(torch.randn(5, 4))
    logs = weights.log()  # cause
    entropy = -(weights * logs).sum(-1)
    (-entropy.mean()).backward()


if __name__ == "__main__":
    program()
