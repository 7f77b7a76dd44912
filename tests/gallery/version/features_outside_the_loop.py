"""Features are computed once, outside the loop whose every step goes backward through them.

error: second time
node: AddmmBackward0
"""

import torch
from torch import nn


def program() -> None:
    """Some epochs over features of a small encoder."""
    torch.manual_seed(0)
    encoder, head = nn.Linear(6, 4), nn.Linear(4, 2)
    x = torch.randn(5, 6, requires_grad=True)
    features = encoder(x)  # cause
    for _ in range(3):
        loss = nn.functional.mse_loss(head(features), torch.ones(5, 2))
        loss.backward()


if __name__ == "__main__":
    program()
