import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
block = nn.Sequential(nn.Linear(6, 24), nn.Dropout(0.5), nn.Linear(24, 4))
dropped = []
block[1].register_forward_hook(lambda m, i, out: dropped.append(bool((out == 0).any())))
x = torch.randn(5, 6, requires_grad=True)
loss = checkpoint(block, x, use_reentrant=True).square().mean()
block.eval()  # CAUSE
loss.backward()
print("dropped in forward:", dropped[0], "in recomputation:", dropped[1])
