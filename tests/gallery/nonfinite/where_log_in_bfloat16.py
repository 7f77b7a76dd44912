"""The log of a share, guarded by torch.where, in bfloat16.

pattern: 0 * inf behind torch.where
node: LogBackward0
"""

import torch
from torch import Tensor, nn


class Usage(nn.Module):
    """How evenly experts are used."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 4, dtype=torch.bfloat16)

    def forward(self, x: Tensor, is_routed: Tensor) -> Tensor:
        share = (torch.sigmoid(self.gate(x)) * is_routed).mean(0)
        logs = torch.log(share)  # cause
        return torch.where(share > 0, logs, torch.zeros_like(logs))


def program() -> None:
    """A training step in which an expert is never used."""
    model = Usage()
    is_routed = torch.rand(8, 4) > 0.5
    is_routed[:, 1] = False
    model(torch.randn(8, 4, dtype=torch.bfloat16), is_routed).sum().backward()


if __name__ == "__main__":
    program()
