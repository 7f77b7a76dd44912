import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(0)
model = nn.Sequential(weight_norm(nn.Linear(5, 10)), nn.Tanh(), nn.Linear(10, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
gain = model[0].parametrizations.weight.original0
before = gain.detach().clone()
for _ in range(3):
    x = torch.randn(8, 5)
    optimizer.zero_grad()
    (model(x) - x[:, :1]).square().mean().backward()
    optimizer.step()
print("gain moved", not torch.equal(before, gain))
