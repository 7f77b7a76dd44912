import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)).to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 4, dtype=torch.bfloat16)
x[::3] *= 4000
y = (x.sum(1, keepdim=True) > 0).to(torch.bfloat16)
with torch.no_grad():
    model[2].weight.abs_()

p = torch.sigmoid(model(x))
loss = -(y * torch.log(p + 1e-9) + (1 - y) * torch.log(1 + 1e-9 - p)).mean()  # CAUSE
optimizer.zero_grad()
loss.backward()
print("loss", loss.item())
print("finite", bool(model[0].weight.grad.isfinite().all()))
