import torch
from torch import nn

torch.manual_seed(0)


def count(fn):
    seen, todo = set(), [fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo.extend(following for following, _ in node.next_functions)
    return len(seen)


model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
running = 0.0
sizes = []
for step in range(6):
    x = torch.randn(16, 6)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running += loss  # CAUSE
    sizes.append(count(running.grad_fn))
print("nodes behind the running loss:", sizes)
print("mean loss", float(running) / 6)
