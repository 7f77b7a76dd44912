"""A learned temperature becomes a Python number on its way into the loss.

gradient: none
cause: left_torch
parameter: log_temperature
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Contrastive(nn.Module):
    """Embeds pairs; the temperature is learned as a logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 4)
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        temperature = self.log_temperature.exp().item()  # cause
        one, other = (F.normalize(self.embed(x), dim=-1) for x in (a, b))
        return one @ other.T / temperature


def loss(model: nn.Module) -> Tensor:
    """Of one batch of pairs."""
    a = torch.randn(5, 6)
    return F.cross_entropy(model(a, a + 0.1 * torch.randn(5, 6)), torch.arange(5))


def program() -> nn.Module:
    """One training step."""
    model = Contrastive()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
