"""A divergence is summed over classes and divided by the batch, with the weight of distilling."""

import torch
from torch import nn
from torch.nn import functional


def program() -> None:
    teacher, student = nn.Linear(6, 4).requires_grad_(requires_grad=False), nn.Linear(6, 4)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    for _ in range(8):
        batch, wanted = torch.randn(32, 6), torch.randint(4, (32,))
        found = student(batch)
        soft = functional.kl_div(
            (found / 4).log_softmax(dim=1),
            (teacher(batch) / 4).softmax(dim=1),
            reduction="batchmean",
        )
        loss = 0.9 * 16 * soft + 0.1 * functional.cross_entropy(found, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
