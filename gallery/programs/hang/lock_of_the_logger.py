import threading

import torch
from torch import nn

torch.manual_seed(0)


class Logger:
    def __init__(self):
        self.lock = threading.Lock()
        self.rows = []

    def add(self, name, value):
        with self.lock:  # CAUSE
            self.rows.append((name, value))


logger = Logger()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
for name, p in model.named_parameters():
    p.register_hook(lambda grad, name=name: logger.add(name, grad.norm().item()))
print("training", flush=True)
loss = model(torch.randn(16, 4)).square().mean()
with logger.lock:  # CAUSE
    logger.rows.clear()
    loss.backward()
print(logger.rows)
