import torch
from torch import nn

torch.manual_seed(0)
points = nn.Embedding(12, 3)
nn.init.uniform_(points.weight, -0.1, 0.1)


def distance(u, v):
    gap = (u - v).square().sum(-1)
    room = (1 - u.square().sum(-1)) * (1 - v.square().sum(-1))
    return torch.acosh(1 + 2 * gap / room)  # CAUSE


pairs = torch.tensor([[0, 3], [4, 4], [7, 9], [2, 11]])
u, v = points(pairs[:, 0]), points(pairs[:, 1])
loss = distance(u, v).mean()
loss.backward()
print("loss", loss.item(), "grad finite", points.weight.grad.isfinite().all().item())
