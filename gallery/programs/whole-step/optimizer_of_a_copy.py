import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(average.parameters(), lr=0.1)  # CAUSE
x = torch.randn(40, 3)
losses = []
for _ in range(10):
    loss = nn.functional.mse_loss(model(x), x[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print("loss fell", losses[-1] < losses[0])
