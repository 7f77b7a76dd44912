import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
before = [p.detach().clone() for p in model.parameters()]
for step in range(12):
    x = torch.randn(32, 6)
    optimizer.zero_grad()
    loss = (model(x).squeeze(-1) - x.sum(-1)).square().mean()
    loss.backward()  # CAUSE
    scheduler.step()  # CAUSE
moved = any(not torch.equal(a, b) for a, b in zip(before, model.parameters()))
print("moved", moved, "loss", loss.item())
