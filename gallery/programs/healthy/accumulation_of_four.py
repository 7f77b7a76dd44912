import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 2))
optimizer = torch.optim.AdamW(model.parameters())
steps = 0
for i in range(12):
    loss = nn.functional.cross_entropy(model(torch.randn(4, 5)), torch.randint(2, (4,))) / 4
    loss.backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
print("steps", steps)
