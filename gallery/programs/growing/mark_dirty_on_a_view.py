import gc
import weakref

import torch

torch.manual_seed(0)
gc.disable()
alive, sizes = weakref.WeakSet(), []


class InplaceRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.relu_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)  # CAUSE
        return x

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * (y > 0)


weight = torch.randn(6, 6, requires_grad=True)
for _ in range(5):
    z = torch.randn(3, 6) @ weight
    alive.add(z.grad_fn)
    InplaceRelu.apply(z[0])  # CAUSE
    z.sum().backward()
    del z
    sizes.append(len(alive))
print("nodes alive", sizes)
