import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total, right = 0.0, 0
for _ in range(3):
    x, y = torch.randn(16, 8), torch.randint(3, (16,))
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
    right += int((logits.detach().argmax(-1) == y).sum())
print("accuracy", right / 48)
