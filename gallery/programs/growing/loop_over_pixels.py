import torch
from torch import nn

torch.manual_seed(0)
gamma = nn.Parameter(torch.tensor(0.8))
image = torch.rand(32, 32)
rows = []
for y in range(32):
    rows.append(torch.stack([image[y, x] ** gamma for x in range(32)]))  # CAUSE
out = torch.stack(rows)
loss = (out - 0.5).square().mean()


def count(fn):
    seen, todo = set(), [fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo.extend(following for following, _ in node.next_functions)
    return len(seen)


print("nodes", count(loss.grad_fn))
loss.backward()
