import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))


def fit(model, x, y):
    return nn.functional.mse_loss(model(x), y)


for task in range(2):
    x = torch.rand(10, 1) * 6
    y = torch.sin(x + task)
    outer = fit(net, x[5:], y[5:])
    inner = fit(net, x[:5], y[:5])
    grads = torch.autograd.grad(inner, list(net.parameters()))
    with torch.no_grad():
        for parameter, grad in zip(net.parameters(), grads):
            parameter -= 0.01 * grad  # CAUSE
    outer.backward()
