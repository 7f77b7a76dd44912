"""Inside a checkpointed block, what the query is made of is detached.

gradient: none
cause: detach
parameter: block.query.*
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    """One head."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x).detach()  # cause
        scores = query @ self.key(x).transpose(-1, -2)
        return scores.softmax(-1) @ self.value(x)


class Checkpointed(nn.Module):
    """A block that is recomputed in backward, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Attention()
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.block, x, use_reentrant=False))


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(2, 3, 4)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Checkpointed()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
