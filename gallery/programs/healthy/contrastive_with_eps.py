import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(net.parameters())
a, b = torch.randn(2, 10, 8).unbind(0)
b[3] = a[3]
same = (torch.arange(10) % 2).float()
for _ in range(2):
    d = ((net(a) - net(b)).square().sum(1) + 1e-8).sqrt()
    loss = (same * d.square() + (1 - same) * (1 - d).clamp(min=0).square()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("finite", bool(net[0].weight.grad.isfinite().all()))
