import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 1))
optimizer = torch.optim.Adam(body.parameters())
x = torch.randn(40, 5)
y = torch.where(x.sum(1, keepdim=True) > 0, 1.0, -1.0)
for _ in range(3):
    wrong = 0.5 * (1 - torch.sign(body(x)) * y)  # CAUSE
    loss = wrong.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("errors", loss.item(), "body grad", body[0].weight.grad.abs().max().item())
