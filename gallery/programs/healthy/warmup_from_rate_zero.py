import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(5, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 3))
before = model.weight.detach().clone()
for _ in range(5):
    loss = nn.functional.cross_entropy(model(torch.randn(8, 5)), torch.randint(2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
print("moved", not torch.equal(before, model.weight))
