import torch
from torch import nn

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
age, income = nn.Linear(16, 1), nn.Linear(16, 1)
parameters = [*trunk.parameters(), *age.parameters(), *income.parameters()]
optimizer = torch.optim.Adam(parameters)
x, y = torch.randn(20, 8), torch.randn(20, 2)
shared = trunk(x)
loss_age = (age(shared) - y[:, :1]).square().mean()
loss_income = (income(shared) - y[:, 1:]).square().mean()
optimizer.zero_grad()
loss_age.backward()  # CAUSE
loss_income.backward()  # CAUSE
optimizer.step()
