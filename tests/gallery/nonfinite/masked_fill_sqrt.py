"""masked_fill after a square root hides the values of padding, not their gradients.

pattern: 0 * inf behind masked_fill
node: SqrtBackward0
"""

import torch
from torch import Tensor, nn


class Deviation(nn.Module):
    """The scale of each token's features, 0 for padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 6, bias=False)

    def forward(self, x: Tensor, is_padding: Tensor) -> Tensor:
        energy = self.embed(x).abs().amax(-1)
        scale = energy.sqrt()  # cause
        return scale.masked_fill(is_padding, 0.0)


def program() -> None:
    """A training step on a padded batch."""
    model = Deviation()
    is_padding = torch.tensor([[False, False, True], [False, True, True]])
    x = torch.randn(2, 3, 5).masked_fill(is_padding[..., None], 0.0)
    model(x, is_padding).sum().backward()


if __name__ == "__main__":
    program()
