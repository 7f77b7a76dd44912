import threading

import torch
from torch import nn

torch.manual_seed(0)
changed = threading.Condition()
inbox = []


def consumer():
    while True:
        with changed:
            changed.wait_for(lambda: inbox)
            inbox.pop()
            changed.notify_all()


threading.Thread(target=consumer, daemon=True).start()


class Stream(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        with changed:
            changed.wait()  # CAUSE
            inbox.append(grad)
        return grad


layer = nn.Linear(3, 3)
print("streaming", flush=True)
Stream.apply(layer(torch.randn(4, 3))).sum().backward()
