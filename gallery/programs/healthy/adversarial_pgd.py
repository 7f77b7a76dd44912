import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.rand(8, 10), torch.randint(3, (8,))
delta = torch.zeros_like(x, requires_grad=True)
for _ in range(3):
    loss = nn.functional.cross_entropy(model(x + delta), y)
    (slope,) = torch.autograd.grad(loss, delta)
    with torch.no_grad():
        delta += 0.02 * slope.sign()
        delta.clamp_(-0.05, 0.05)
optimizer.zero_grad()
nn.functional.cross_entropy(model(x + delta.detach()), y).backward()
optimizer.step()
print("inside the ball", bool(delta.abs().max() <= 0.05))
