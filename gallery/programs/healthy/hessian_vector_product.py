import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 1))
x, y = torch.randn(20, 3), torch.randn(20, 1)
parameters = list(model.parameters())
loss = (model(x) - y).square().mean()
grads = torch.autograd.grad(loss, parameters, create_graph=True)
v = [torch.randn_like(p) for p in parameters]
hv = torch.autograd.grad(
    sum((g * d).sum() for g, d in zip(grads, v)), parameters, retain_graph=True
)
loss.backward()
print("curvature", sum((h * d).sum() for h, d in zip(hv, v)).item())
