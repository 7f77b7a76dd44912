import threading

import torch
from torch import nn

torch.manual_seed(0)
stop = threading.Event()
writer = threading.Thread(target=stop.wait, daemon=True)
writer.start()
net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 1))


def finish(grad):
    writer.join()  # CAUSE
    return grad


net[0].weight.register_hook(finish)
print("joined", flush=True)
net(torch.randn(2, 1, 8, 8)).sum().backward()
stop.set()
