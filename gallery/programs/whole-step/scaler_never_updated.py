import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
before = model.weight.detach().clone()
for _ in range(6):
    x = torch.randn(32, 8).half()
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # CAUSE
    scaler._per_optimizer_states.clear()
print("moved", not torch.equal(before, model.weight))
