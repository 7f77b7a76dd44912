import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
WARM = 20
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 8), torch.randn(64, 1)
for step in range(12):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    for p in model.parameters():
        p.grad *= min(1, step // WARM)  # CAUSE
    optimizer.step()
print("largest gradient", max(p.grad.abs().max().item() for p in model.parameters()))
