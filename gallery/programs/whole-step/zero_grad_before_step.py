import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
optimizer = torch.optim.Adam(model.parameters())
before = model[0].weight.detach().clone()
for _ in range(3):
    loss = nn.functional.cross_entropy(model(torch.randn(4, 1, 8, 8)), torch.randint(2, (4,)))
    loss.backward()
    optimizer.zero_grad()  # CAUSE
    optimizer.step()
print("moved", not torch.equal(before, model[0].weight))
