import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
block = nn.Sequential(nn.Linear(5, 20), nn.Dropout(0.3), nn.GELU(), nn.Linear(20, 5))
x = torch.randn(8, 5)
grads = []
for use in (True, False):
    torch.manual_seed(7)
    block.zero_grad()
    out = checkpoint(block, x, use_reentrant=False) if use else block(x)
    out.square().mean().backward()
    grads.append(block[0].weight.grad.clone())
print("equal", torch.allclose(*grads))
