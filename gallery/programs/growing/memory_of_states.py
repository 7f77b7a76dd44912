import weakref

import torch
from torch import nn

torch.manual_seed(0)


class Token:
    """Lives as long as the node that it is put on."""


def follow(node):
    node.metadata["token"] = token = Token()
    alive.add(token)


cell, head = nn.GRUCell(4, 8), nn.Linear(8, 2)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
episodes, alive, sizes = [], weakref.WeakSet(), []
for episode in range(5):
    state, trace = torch.zeros(1, 8), []
    for _ in range(6):
        state = cell(torch.randn(1, 4), state)
        trace.append(state)  # CAUSE
    follow(state.grad_fn)
    loss = head(state).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    episodes.append(trace)  # CAUSE
    del loss, state, trace
    sizes.append(len(alive))
print("graphs alive", sizes)
