"""What the demo needs to know of a model: how to feed it, judge it, place it and spoil it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Batches(Protocol):
    """The training data: the same batch for the same step in every run."""

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of ``step``."""


@dataclass(frozen=True)
class Subject:
    """A model to train, small enough for two processor cores."""

    title: str
    model: nn.Module
    batches: Batches
    loss: Callable[[Tensor, Tensor], Tensor]
    """From the model's output and the targets to a scalar."""
    halves: tuple[Sequence[nn.Module], Sequence[nn.Module]]
    """The modules that go to the first and to the second simulated device."""
    planted: PaddedNorm | None
    """A part of the model that is harmless until it meets padding."""
    steps: int
    learning_rate: float
    sample: Callable[[], str] | None = None
    """Something the trained model makes."""


class PaddedNorm(nn.Module):
    """Scales each vector to the same length, with a bug that many have written.

    ``torch.where`` keeps the 0/0 of padded positions, which are all zero, out of the output; but
    the gradient of the branch that was not taken is computed too, as 0 * (1/0), and is NaN.
    """

    def __init__(self) -> None:
        super().__init__()
        self.padded = 0
        """How many positions at the end of the batch's first sample are padding."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x``, of shape (batch, positions, features), along its last dimension."""
        keep = torch.ones_like(x)
        keep[0, x.shape[1] - self.padded :] = 0
        x = x * keep
        length = x.square().mean(-1, keepdim=True).sqrt()
        return torch.where(length > 0, x / length, x)
