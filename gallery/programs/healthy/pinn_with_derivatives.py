import torch
from torch import nn

torch.manual_seed(0)
u = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(u.parameters(), lr=1e-3)
for _ in range(4):
    x = torch.rand(20, 1, requires_grad=True)
    y = u(x)
    (dy,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (ddy,) = torch.autograd.grad(dy.sum(), x, create_graph=True)
    residual = (ddy + y).square().mean()
    edge = (u(torch.zeros(1, 1)) - 1).square().mean()
    optimizer.zero_grad()
    (residual + edge).backward()
    optimizer.step()
print("residual", residual.item())
