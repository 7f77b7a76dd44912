import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(2):
    optimizer.zero_grad()
    for phase in (0.0, 1.0, 2.0):
        x = torch.rand(20, 1) * 6
        y = (x + phase).sin()
        weights = dict(net.named_parameters())
        inner = (functional_call(net, weights, x[:10]) - y[:10]).square().mean()
        grads = torch.autograd.grad(inner, weights.values(), create_graph=True)
        fast = {n: w - 0.05 * g for (n, w), g in zip(weights.items(), grads)}
        ((functional_call(net, fast, x[10:]) - y[10:]).square().mean() / 3).backward()
    optimizer.step()
print("meta grad", net[0].weight.grad.norm().item())
