import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(512, 8).half() * 1e-2
prediction = model(x)
loss = (prediction * 1e-3).square().float().mean()  # CAUSE
optimizer.zero_grad()
loss.backward()
optimizer.step()
print("grad", model[0].weight.grad.abs().max().item())
