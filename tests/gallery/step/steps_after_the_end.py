"""The optimizer is to step each hundred batches, and there are six, each of which clears gradients.

finding: never steps
"""

import torch
from torch import nn


def program() -> object:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in range(6):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        if batch % 100 == 99:
            optimizer.step()  # cause
    return model, optimizer
