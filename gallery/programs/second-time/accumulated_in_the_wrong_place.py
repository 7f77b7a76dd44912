import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 10), nn.GELU(), nn.Linear(10, 2))
optimizer = torch.optim.AdamW(model.parameters())
total = 0.0
optimizer.zero_grad()
for micro in torch.randn(4, 8, 5):
    loss = nn.functional.cross_entropy(model(micro), torch.randint(2, (8,)))
    total = total + loss / 4  # CAUSE
    total.backward()
optimizer.step()
