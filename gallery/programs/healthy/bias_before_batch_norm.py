import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(6, 3, 8, 8)), torch.randint(2, (6,))).backward()
    optimizer.step()
print("bias grad under 1e-6", bool(model[0].bias.grad.abs().max() < 1e-6))
