import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(64, 8)
y = 3 * x[:, :1] + 5
for step in range(20):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    if step >= 10:
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
print("loss", loss.item())
