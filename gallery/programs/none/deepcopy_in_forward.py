import copy

import torch
from torch import nn

torch.manual_seed(0)


class Universal(nn.Module):
    """The same block again and again, with a fresh dropout each time."""

    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Linear(5, width)
        self.block = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1))
        self.depth = depth
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        h = self.embed(x)
        for _ in range(self.depth):
            block = copy.deepcopy(self.block)  # CAUSE
            h = h + block(h)
        return self.head(h)


model = Universal(16, 3)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(4):
    loss = model(torch.randn(8, 5)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("block", model.block[0].weight.grad)
