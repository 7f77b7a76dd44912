import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
stem = nn.Linear(4, 8)
blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))
optimizer = torch.optim.Adam([*stem.parameters(), *blocks.parameters()])
for _ in range(2):
    h = stem(torch.randn(6, 4))
    for block in blocks:
        h = checkpoint(block, h, use_reentrant=True)
    optimizer.zero_grad()
    h.square().mean().backward()
    optimizer.step()
print("stem has grad", stem.weight.grad is not None)
