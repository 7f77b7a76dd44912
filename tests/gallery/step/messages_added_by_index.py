"""Messages are added to the nodes of a graph with +=, which keeps one of those for the same node.

finding: lost sums
"""

import torch
from torch import Tensor, nn


class Conv(nn.Module):
    """Adds messages of neighbours."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.own, self.neighbour = nn.Linear(wide, out), nn.Linear(wide, out)

    def forward(self, h: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        message = self.neighbour(h)[source]
        total = torch.zeros(len(h), message.size(1))
        total[target] += message  # cause
        return self.own(h) + total


def program() -> None:
    first, last = Conv(5, 8), Conv(8, 1)
    optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=1e-3)
    for _ in range(6):
        x, edges = torch.randn(10, 5), torch.randint(0, 10, (2, 40))
        wanted = torch.zeros(10).index_add(0, edges[1], x[edges[0], 0])
        loss = (last(first(x, edges).relu(), edges).squeeze(1) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
