import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1))
x, y = torch.randn(16, 4), torch.randn(16, 1)


def loss_of():
    return nn.functional.mse_loss(net(x), y)


(right,) = torch.autograd.grad(loss_of(), net[0].weight)
loss = loss_of()
for parameter in net.parameters():
    parameter.data.add_(torch.randn_like(parameter), alpha=0.5)  # CAUSE
loss.backward()
print(f"error {((net[0].weight.grad - right).norm() / right.norm()).item():.3f}")
