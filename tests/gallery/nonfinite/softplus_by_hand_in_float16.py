"""log(1 + exp(x)) by hand: exp is infinite in float16 from 11.1 on.

pattern: overflow of exp
node: AddmmBackward0
op: torch.exp
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Softplus(nn.Module):
    """An activation that is positive."""

    def forward(self, x: Tensor) -> Tensor:
        raised = torch.exp(x)  # cause
        return torch.log1p(raised)


def program() -> None:
    """A training step."""
    model = nn.Sequential(nn.Linear(4, 4), Softplus(), nn.Linear(4, 1)).half()
    x = torch.randn(6, 4, dtype=torch.float16)
    x[0] *= 100
    model(x).float().clamp(max=20.0).mean().backward()


if __name__ == "__main__":
    program()
