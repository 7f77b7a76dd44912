import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(10, 40), nn.Linear(40, 2)
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()])
for _ in range(2):
    h = nn.functional.dropout(first(torch.randn(2, 10)).relu(), 0.9)
    optimizer.zero_grad()
    nn.functional.cross_entropy(second(h), torch.tensor([0, 1])).backward()
    optimizer.step()
print("share of zeros", (first.weight.grad == 0).float().mean().item())
