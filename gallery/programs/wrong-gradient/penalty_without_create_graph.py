import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
x = torch.randn(8, 4, requires_grad=True)


def loss_of(weight):
    score = critic(x)
    (slope,) = torch.autograd.grad(score.sum(), x, retain_graph=True)  # CAUSE
    penalty = (slope.norm(dim=1) - 1).square().mean()
    return score.mean() + weight * penalty


(low,) = torch.autograd.grad(loss_of(0.0), critic[0].weight)
loss_of(10.0).backward()
print("penalty moves the weights:", not torch.allclose(low, critic[0].weight.grad))
