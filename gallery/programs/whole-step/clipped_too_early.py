import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
x = torch.randn(32, 5) * 20
y = x[:, :1] ** 2
above = []
for step in range(5):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # CAUSE
    loss.backward()
    above.append(model[0].weight.grad.norm().item() > 1.0)
    optimizer.step()
print("norm above the limit:", all(above))
