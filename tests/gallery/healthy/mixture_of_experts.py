"""All experts but the best two get -inf before softmax."""

import torch
from torch import Tensor, nn


class Mixture(nn.Module):
    """Four experts behind a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 4)
        self.experts = nn.ModuleList(nn.Linear(4, 3) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.gate(x)
        best = scores.topk(2, -1).indices
        kept = torch.full_like(scores, float("-inf")).scatter(-1, best, scores.gather(-1, best))
        outs = torch.stack([expert(x) for expert in self.experts], -2)
        return (torch.softmax(kept, -1)[..., None] * outs).sum(-2)


def program() -> None:
    """A training step."""
    Mixture()(torch.randn(6, 4)).pow(2).mean().backward()


if __name__ == "__main__":
    program()
