import torch
from torch import nn

torch.manual_seed(0)
SCALE = 2.0**120
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
before = model[0].weight.detach().clone()
for _ in range(6):
    x = torch.randn(32, 8) * 1e3
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x).float() - x.sum(1, keepdim=True)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update(SCALE)  # CAUSE
print("moved", not torch.equal(before, model[0].weight))
