import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    x = torch.randn(16, 5)
    if step == 1:
        x[3, 0] = float("inf")
    loss = model(x).square().mean()  # CAUSE
    if not loss.isfinite():
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
print("eval output finite", bool(model(torch.randn(2, 5)).isfinite().all()))
