import functools

import torch
from torch import nn

torch.manual_seed(0)


class Positions(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(2, width)

    @functools.lru_cache(maxsize=None)  # CAUSE
    def forward(self, length, offset):
        steps = torch.arange(offset, offset + length) / 100
        return self.project(torch.stack([steps.sin(), steps.cos()], -1))  # CAUSE


positions = Positions(16)
body = nn.GRU(16, 16, batch_first=True)
head = nn.Linear(16, 1)
optimizer = torch.optim.Adam([*positions.parameters(), *body.parameters(), *head.parameters()])
for step in range(16):
    x = torch.randn(8, 20, 16) + positions(20, 20 * step)  # CAUSE
    loss = head(body(x)[0]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("encodings kept", Positions.forward.cache_info().currsize)
