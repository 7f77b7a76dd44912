import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=3.0, momentum=0.9)  # CAUSE
x = torch.randn(100, 10)
y = x.sum(1, keepdim=True)
for step in range(25):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # CAUSE
print("loss", loss.item())
