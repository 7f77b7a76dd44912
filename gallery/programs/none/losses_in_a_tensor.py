import torch
from torch import nn

torch.manual_seed(0)
trunk = nn.Linear(6, 12)
heads = nn.ModuleList(nn.Linear(12, 1) for _ in range(3))
model = nn.ModuleDict({"trunk": trunk, "heads": heads})
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(3):
    x = torch.randn(10, 6)
    h = trunk(x).relu()
    losses = [(head(h) - x[:, i : i + 1]).square().mean() for i, head in enumerate(heads)]
    total = torch.tensor(losses, requires_grad=True).sum()  # CAUSE
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
print("none:", all(p.grad is None for p in model.parameters()))
