import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 10), torch.randint(2, (64,))
passes = 0
model[2].bias.register_hook(lambda grad: globals().update(passes=passes + 1))
optimizer.zero_grad()
for i in range(64):
    loss = nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]) / 64
    loss.backward()  # CAUSE
optimizer.step()
print("passes a step", passes)
