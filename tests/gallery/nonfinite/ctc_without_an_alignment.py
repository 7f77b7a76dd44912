"""A target of CTC loss that is longer than its input.

pattern: ctc_loss without an alignment
node: CtcLossBackward0
"""

import torch
from torch import Tensor, nn


class Recogniser(nn.Module):
    """Log-probabilities of letters over time."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).log_softmax(-1)


def program() -> None:
    """A training step; the second utterance is too short for its transcript."""
    model = Recogniser()
    targets = torch.randint(1, 5, (2, 6))
    steps, lengths = torch.tensor([5, 5]), torch.tensor([3, 6])
    loss = nn.functional.ctc_loss(model(torch.randn(5, 2, 4)), targets, steps, lengths)  # cause
    loss.backward()


if __name__ == "__main__":
    program()
