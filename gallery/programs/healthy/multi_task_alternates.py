import torch
from torch import nn

torch.manual_seed(0)
trunk = nn.Linear(5, 12)
heads = nn.ModuleList([nn.Linear(12, 2), nn.Linear(12, 4)])
optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()])
start = [head.weight.detach().clone() for head in heads]
for step in range(6):
    task = step % 2
    scores = heads[task](trunk(torch.randn(8, 5)).relu())
    loss = nn.functional.cross_entropy(scores, torch.randint(2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("heads moved", [not torch.equal(a, head.weight) for a, head in zip(start, heads)])
