import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)


def derivatives(points):
    u = net(points)
    (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    u_x, u_t = first[:, 0], first[:, 1]
    second = torch.autograd.grad(u_x.sum(), points, retain_graph=True)[0]  # CAUSE
    return u_t, second[:, 0]


for step in range(20):
    points = torch.rand(64, 2, requires_grad=True)
    u_t, u_xx = derivatives(points)
    start = torch.stack([torch.rand(32), torch.zeros(32)], 1)
    residual = (u_t - 0.1 * u_xx).square().mean()
    initial = (net(start).squeeze(1) - torch.sin(3.14159 * start[:, 0])).square().mean()
    optimizer.zero_grad()
    (residual + initial).backward()
    optimizer.step()
print("u_xx has a graph:", u_xx.requires_grad)
