import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
best, best_loss = copy.deepcopy(model.state_dict()), float("inf")
x, y = torch.randn(32, 8), torch.randn(32, 1)
for epoch in range(4):
    loss = nn.functional.mse_loss(model(x), y)
    if epoch == 2 or loss.item() > best_loss:
        model.load_state_dict(best)  # CAUSE
    else:
        best, best_loss = copy.deepcopy(model.state_dict()), loss.item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
