import gc
import weakref

import torch
from torch import nn

torch.manual_seed(0)
gc.disable()  # for speed, as some frameworks do
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
alive, sizes = weakref.WeakSet(), []


class Token:
    """Lives as long as the node that it is put on."""


def attribute(hidden, scores):
    hidden.register_hook(lambda grad: scores.append((grad * hidden).sum().item()))  # CAUSE


for _ in range(5):
    scores = []
    hidden = model[0](torch.randn(8, 4))
    hidden.grad_fn.metadata["token"] = token = Token()
    alive.add(token)
    attribute(hidden, scores)
    loss = model[2](model[1](hidden)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del hidden, loss, token
    sizes.append(len(alive))
print("graphs alive", sizes)
