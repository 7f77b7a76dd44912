import queue
import threading

import torch
from torch import nn

torch.manual_seed(0)
threading.excepthook = lambda args: None
wanted, ready = queue.Queue(), queue.Queue()
store = {}


def prefetch():
    while True:
        key = wanted.get()
        ready.put(store[f"t{key}"])


threading.Thread(target=prefetch, daemon=True).start()


def pack(tensor):
    key = len(store)
    store[key] = tensor.clone()
    return key


def unpack(key):
    wanted.put(key)
    return ready.get()  # CAUSE


model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
print("begin", flush=True)
with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
    loss = model(torch.randn(6, 4)).square().mean()
loss.backward()
