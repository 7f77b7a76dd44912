import torch
from torch import nn

torch.manual_seed(0)
offsets = nn.Parameter(torch.zeros(6, 3))
targets = torch.randn(6, 3)
optimizer = torch.optim.SGD([offsets], lr=0.1)
for _ in range(3):
    sparsity = offsets.norm(dim=1).sum()  # group lasso
    loss = (offsets - targets).square().mean() + 0.01 * sparsity
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("finite", bool(offsets.isfinite().all()))
