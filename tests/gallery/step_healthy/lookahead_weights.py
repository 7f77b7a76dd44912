"""Every fifth step the weights go half the way back to slow ones."""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    slow = [parameter.detach().clone() for parameter in model.parameters()]
    for step in range(15):
        loss = nn.functional.cross_entropy(model(torch.randn(9, 6)), torch.randint(3, (9,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            with torch.no_grad():
                for kept, parameter in zip(slow, model.parameters(), strict=True):
                    kept.lerp_(parameter, 0.5)
                    parameter.copy_(kept)
