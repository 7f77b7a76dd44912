"""A component of a mixture of waiting times narrows onto times that were rounded.

finding: collapses
"""

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, Normal


def _waits(count: int) -> Tensor:
    kind = torch.rand(count)
    spread = 2.0 + 0.8 * torch.randn(count)
    return torch.where(kind < 0.4, 5.0 + 1e-4 * torch.randn(count), spread)


def program() -> object:
    weights = nn.Parameter(torch.zeros(3))
    middles = nn.Parameter(torch.tensor([1.0, 3.0, 5.2]))
    widths = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([weights, middles, widths], lr=0.1)
    waits = _waits(300)
    for _ in range(160):
        width = widths.exp()  # cause
        model = MixtureSameFamily(Categorical(logits=weights), Normal(middles, width))
        loss = -model.log_prob(waits[torch.randint(300, (64,))]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return weights, middles, widths
