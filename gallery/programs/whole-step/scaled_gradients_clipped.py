import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
before = model[0].weight.detach().clone()
x = torch.randn(50, 6)
y = x.sum(1, keepdim=True)
for _ in range(10):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # CAUSE
    scaler.step(optimizer)
    scaler.update()
print("moved by less than 1e-4:", bool((model[0].weight - before).abs().max() < 1e-4))
