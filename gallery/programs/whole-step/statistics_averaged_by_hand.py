import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
x, y = torch.randn(64, 6), torch.randn(64, 1)
workers = 0
for step in range(8):
    optimizer.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
for buffer in (net[1].running_mean, net[1].running_var):
    total = buffer * workers
    buffer.copy_(total / workers)  # CAUSE
net.eval()
print("eval", net(x).sum().item())
