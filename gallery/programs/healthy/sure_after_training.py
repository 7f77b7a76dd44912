import torch
from torch import nn

torch.manual_seed(0)
x = torch.cat([torch.randn(40, 2) + 6, torch.randn(40, 2) - 6])
y = torch.arange(2).repeat_interleave(40)
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.3)
for step in range(120):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print("sure:", loss.item() < 1e-4 and (model(x).argmax(1) == y).all().item())
