"""The loss is scaled by 2**20 as GradScaler would, more than float16 gradients can take.

pattern: overflow in float16
node: ToCopyBackward0
"""

import torch
from torch import Tensor, nn


class Regressor(nn.Module):
    """A model in float16 whose loss is computed in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).half()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x.half())
        return out.float()  # cause


def program() -> None:
    """A training step."""
    model = Regressor()
    loss = nn.functional.mse_loss(model(torch.randn(4, 4)), torch.full((4, 1), 3.0))
    (loss * 2.0**20).backward()


if __name__ == "__main__":
    program()
