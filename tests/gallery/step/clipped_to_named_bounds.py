"""The ratio of two policies is clipped to bounds whose names are in the wrong order.

finding: bounds swapped
"""

import torch
from torch import nn

UPPER = 1.2
LOWER = 0.8


def program() -> None:
    policy = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    x, action, gain = torch.randn(32, 4), torch.randint(3, (32,)), torch.randn(32)
    old = policy(x).log_softmax(-1)[torch.arange(32), action].detach()
    for _ in range(8):
        ratio = (policy(x).log_softmax(-1)[torch.arange(32), action] - old).exp()
        kept = torch.clamp(ratio, min=UPPER, max=LOWER)  # cause
        loss = -torch.min(ratio * gain, kept * gain).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
