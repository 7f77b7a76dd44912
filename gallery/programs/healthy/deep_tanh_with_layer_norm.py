import torch
from torch import nn

torch.manual_seed(0)
blocks = []
for _ in range(12):
    blocks += [nn.Linear(32, 32), nn.LayerNorm(32), nn.Tanh()]
model = nn.Sequential(*blocks, nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.randn(64, 32)
y = x[:, :3].argmax(1)
for step in range(15):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"first layer {model[0].weight.grad.norm():.4f}")
