import torch
from torch import nn

torch.manual_seed(0)
layer = nn.MultiheadAttention(8, 2, batch_first=True)
optimizer = torch.optim.Adam(layer.parameters())
mask = torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), -1e9)
for _ in range(2):
    x = torch.randn(3, 5, 8)
    out, _ = layer(x, x, x, attn_mask=mask, need_weights=False)
    optimizer.zero_grad()
    (out - x).square().mean().backward()
    optimizer.step()
print("finite", bool(layer.in_proj_weight.grad.isfinite().all()))
