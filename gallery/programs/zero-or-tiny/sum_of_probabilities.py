import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
optimizer = torch.optim.Adam(net.parameters())
image = torch.randn(6, 1, 8, 8)
target = nn.functional.one_hot(torch.randint(5, (6,)), 5).float()
for _ in range(2):
    p = torch.softmax(net(image), -1)
    loss = (p - target).sum(-1).mean()  # CAUSE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("max grad", net[0].weight.grad.abs().max().item())
