import torch
from torch import nn

torch.manual_seed(0)
trunk, a, b = nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(8, 3)
x = torch.randn(10, 6)
h = trunk(x).relu()
first = a(h).square().mean()
second = nn.functional.cross_entropy(b(h), torch.randint(3, (10,)))
(expected,) = torch.autograd.grad(first + second, trunk.weight, retain_graph=True)
first.backward(retain_graph=True)
second.backward()
print("trunk grad is the sum:", torch.allclose(trunk.weight.grad, expected, atol=1e-6))
