import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1)
)
optimizer = torch.optim.Adam(model.parameters())
held = torch.randn(20, 4)
for _ in range(3):
    model.train()
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        score = (model(held) - held.sum(1, keepdim=True)).square().mean()
print("validation", score.item())
