import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1000))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)  # CAUSE
model[2] = nn.Linear(16, 3)  # CAUSE
start = model[2].weight.detach().clone()
for _ in range(5):
    loss = nn.functional.cross_entropy(model(torch.randn(12, 8)), torch.randint(3, (12,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("head moved", not torch.equal(start, model[2].weight))
