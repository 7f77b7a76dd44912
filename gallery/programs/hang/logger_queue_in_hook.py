import queue

import torch
from torch import nn

torch.manual_seed(0)
log = queue.Queue(maxsize=4)


def watch(name):
    def hook(grad):
        log.put((name, grad.norm().item()))  # CAUSE
        return grad

    return hook


model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(4)))
for name, parameter in model.named_parameters():
    parameter.register_hook(watch(name))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("ready", flush=True)
for step in range(2):
    optimizer.zero_grad()
    model(torch.randn(3, 6)).square().mean().backward()
    optimizer.step()
    while not log.empty():
        log.get()
