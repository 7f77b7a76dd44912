import torch
from torch import nn

torch.manual_seed(0)
items = nn.Embedding(40, 8)
user = nn.Linear(5, 8)
optimizer = torch.optim.Adam([*items.parameters(), *user.parameters()])
table = nn.functional.normalize(items.weight, dim=-1)  # CAUSE

for step in range(3):
    x, bought = torch.randn(16, 5), torch.randint(40, (16,))
    loss = nn.functional.cross_entropy(user(x) @ table.T, bought)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
