"""A function defined in the loop through layers scales their gradients by the last layer's factor.

finding: late binding
"""

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Two blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.head = nn.Linear(6, 2)
        factor = 1.0
        for block in self.blocks:
            factor *= 0.5
            for parameter in block.parameters():

                def slow_down(grad: Tensor) -> Tensor:
                    return grad * factor  # noqa: B023

                if parameter.dim() > 1:
                    parameter.register_hook(slow_down)  # cause

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x))
        out: Tensor = self.head(x)
        return out


def program() -> None:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(torch.randn(16, 6)), torch.randint(0, 2, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
