import threading

import torch
from torch import nn

torch.manual_seed(0)
lock = threading.Lock()


class Guarded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, depth):
        ctx.save_for_backward(x)
        ctx.depth = depth
        return x.square()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with lock:  # CAUSE
            if ctx.depth == 0:
                return 2 * x * grad, None
            with torch.enable_grad():
                again = x.detach().requires_grad_()
                inner = Guarded.apply(again, ctx.depth - 1)
            inner.backward(grad)  # CAUSE
            return again.grad, None


layer = nn.Linear(3, 3)
loss = Guarded.apply(layer(torch.randn(2, 3)), 1).mean()
print("forward done", flush=True)
loss.backward()
print("backward done")
