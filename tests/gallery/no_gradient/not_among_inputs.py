"""backward(inputs=...) names the head's parameters only.

gradient: none
cause: not_in_inputs
parameter: body.*
"""

import torch
from torch import nn
from torch.nn import functional as F


class Network(nn.Module):
    """A body and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.silu(self.body(x)))


def program() -> nn.Module:
    """One training step, of all that is optimised."""
    model = Network()
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
    loss = F.cross_entropy(model(torch.randn(4, 4)), torch.tensor([0, 1, 0, 1]))
    loss.backward(inputs=[p for group in optimizer.param_groups for p in group["params"]])  # cause
    optimizer.step()
    return model


if __name__ == "__main__":
    program()
