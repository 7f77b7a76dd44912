"""Under autocast to float16 a matmul's gradient overflows with the loss scale of GradScaler.

pattern: overflow in float16
node: MmBackward0
"""

import torch
from torch import Tensor, nn


class Wide(nn.Module):
    """Weights that are large: what comes back through them is larger."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Parameter(torch.full((8, 3), 30.0))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        return hidden @ self.last  # cause


def program() -> None:
    """A training step."""
    model = Wide()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(torch.randn(4, 4))
    loss = out.float().mean()
    torch.as_tensor(scaler.scale(loss)).backward()


if __name__ == "__main__":
    program()
