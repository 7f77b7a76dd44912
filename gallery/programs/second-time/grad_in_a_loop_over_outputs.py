import torch
from torch import nn

torch.manual_seed(0)
robot = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 2))


def jacobian(joints):
    hand = robot(joints)
    rows = [torch.autograd.grad(hand[i], joints)[0] for i in range(2)]  # CAUSE
    return torch.stack(rows)


joints = torch.randn(3, requires_grad=True)
print(jacobian(joints))
