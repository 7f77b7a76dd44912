import copy

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 4))
start = copy.deepcopy(net.state_dict())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
predictions = []
for episode in range(10):
    net.load_state_dict(start)
    x = torch.randn(32, 6) + 0.3 * episode
    p = net(x).softmax(1)
    entropy = -(p * (p + 1e-6).log()).sum(1).mean()
    optimizer.zero_grad()
    entropy.backward()
    optimizer.step()
    with torch.no_grad():
        predictions.append(net(x).argmax(1))
print("adapted", torch.cat(predictions).float().mean().item())
