import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.manual_seed(0)


def count(fn):
    seen, todo = set(), [fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo.extend(following for following, _ in node.next_functions)
    return len(seen)


model = nn.Sequential(nn.Linear(3, 6), nn.Softplus(), nn.Linear(6, 1))
sizes = []
for step in range(5):
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backward(create_graph=True)  # CAUSE
    sizes.append(count(model[0].weight.grad.grad_fn))
print("nodes behind weight.grad:", sizes)
