import threading

import torch
from torch import nn

torch.manual_seed(0)
slots = threading.Semaphore(3)
host = {}


def offload(name):
    def hook(parameter):
        slots.acquire()  # CAUSE
        host[name] = parameter.grad.clone()
        parameter.grad = None

    return hook


model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(4)))
for name, parameter in model.named_parameters():
    parameter.register_post_accumulate_grad_hook(offload(name))
print("offloading", flush=True)
for _ in range(2):
    model(torch.randn(3, 6)).square().mean().backward()
    for _ in host:
        slots.release()
