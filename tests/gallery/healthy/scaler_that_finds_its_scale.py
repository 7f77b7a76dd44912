"""GradScaler begins with a scale that is too large, and skips steps until one fits.

skipped: MmBackward0
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
        return hidden @ self.last


def program() -> None:
    """Eight training steps, the first of which are skipped."""
    model = Wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    for _ in range(8):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(torch.randn(4, 4))
        torch.as_tensor(scaler.scale(out.float().mean())).backward()
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    program()
