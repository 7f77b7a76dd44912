"""A ranking loss is given whether one text is better, as 0 and 1.

finding: labels
"""

import torch
from torch import nn
from torch.nn import functional


def program() -> None:
    scorer = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(scorer.parameters(), lr=0.05)
    for _ in range(5):
        one, other = torch.randn(16, 5), torch.randn(16, 5)
        optimizer.zero_grad()
        a, b = scorer(one)[:, 0], scorer(other)[:, 0]
        functional.margin_ranking_loss(a, b, (one[:, 0] > other[:, 0]).float()).backward()  # cause
        optimizer.step()
