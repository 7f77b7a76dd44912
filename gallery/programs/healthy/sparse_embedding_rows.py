import torch
from torch import nn

torch.manual_seed(0)
table, out = nn.Embedding(1000, 8), nn.Linear(8, 2)
optimizer = torch.optim.SGD([*table.parameters(), *out.parameters()], lr=0.1)
for _ in range(2):
    loss = nn.functional.cross_entropy(
        out(table(torch.randint(1000, (8,)))), torch.randint(2, (8,))
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("rows with gradient", int((table.weight.grad.abs().sum(1) > 0).sum()))
