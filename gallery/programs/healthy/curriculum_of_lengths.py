import torch
from torch import nn

torch.manual_seed(0)
cell, out = nn.GRUCell(3, 8), nn.Linear(8, 1)
optimizer = torch.optim.Adam([*cell.parameters(), *out.parameters()])
lengths = []
for length in range(4, 20, 4):
    x = torch.randn(6, length, 3)
    state = torch.zeros(6, 8)
    for t in range(length):
        state = cell(x[:, t], state)
    optimizer.zero_grad()
    (out(state) - x.mean((1, 2))[:, None]).square().mean().backward()
    optimizer.step()
    lengths.append(length)
print("lengths", lengths)
