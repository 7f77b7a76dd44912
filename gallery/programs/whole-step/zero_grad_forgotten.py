import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(128, 10)
y = x[:, :1] * 3
norms = []
for epoch in range(8):
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()  # CAUSE
    norms.append(model[0].weight.grad.norm().item())
    optimizer.step()  # CAUSE
print("grad norms grow:", all(b > a * 1.05 for a, b in zip(norms, norms[1:])))
