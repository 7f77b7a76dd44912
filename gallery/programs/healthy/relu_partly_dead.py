import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(6, 32), nn.Linear(32, 1)
with torch.no_grad():
    first.bias[:5] -= 9.0
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()])
for _ in range(3):
    x = torch.rand(64, 6)
    h = first(x).relu()
    loss = (second(h) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("dead units", int((h.amax(0) == 0).sum()))
