import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(5, 1)
optimizer = torch.optim.Adam(model.parameters())
losses, outputs = [], []
for _ in range(6):
    out = model(torch.randn(8, 5))
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    outputs.append(out.detach())
print("history", len(losses), len(outputs))
