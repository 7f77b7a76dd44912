import time

import torch
from torch import nn

torch.manual_seed(0)
cell = nn.GRUCell(4, 8)
head = nn.Linear(8, 1)
h = torch.zeros(2, 8)
depths = []
for chunk in range(16):
    loss = 0.0
    for t in range(5):
        h = cell(torch.randn(2, 4), h)  # CAUSE
        loss = loss + head(h).square().mean()
    loss.backward(retain_graph=True)  # CAUSE
    for p in [*cell.parameters(), *head.parameters()]:
        p.grad = None
    node, depth = h.grad_fn, 0
    while node is not None and depth < 10_000:
        depth += 1
        node = next((n for n, _ in node.next_functions if n is not None and n.next_functions), None)
    depths.append(depth)
print("longer:", depths[-1] > depths[0])
