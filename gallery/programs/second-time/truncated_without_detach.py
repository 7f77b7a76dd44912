import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
running = torch.zeros(())
for step in range(3):
    x = torch.randn(10, 4)
    loss = (model(x) - 1).square().mean()
    running = 0.9 * running + 0.1 * loss  # CAUSE
    optimizer.zero_grad()
    running.backward()
    optimizer.step()
