import torch
from torch import nn

torch.manual_seed(0)
keep = 1.0
model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Dropout(keep), nn.Linear(32, 3))  # CAUSE
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    optimizer.zero_grad()
    x = torch.randn(12, 10)
    loss = nn.functional.cross_entropy(model(x), x.argmax(1) % 3)
    loss.backward()
    optimizer.step()
print("norm", model[0].weight.grad.norm().item())
