import random

import torch
from torch import nn

random.seed(1)
torch.manual_seed(0)
layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
optimizer = torch.optim.AdamW(layers.parameters())
skipped = 0
for _ in range(8):
    x = torch.randn(5, 6)
    for layer in layers:
        if random.random() < 0.25:
            skipped += 1
            continue
        x = x + layer(x).tanh()
    optimizer.zero_grad()
    x.square().mean().backward()
    optimizer.step()
print("skipped", skipped)
