import torch
from torch import nn

torch.manual_seed(0)
scratch = torch.empty(8, 6)


class FastExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        torch.exp(x, out=scratch)
        ctx.out = scratch  # CAUSE
        return scratch.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.out  # CAUSE


layer = nn.Linear(6, 6)
x = torch.randn(8, 6)


def loss_of(exp):
    return exp(exp(layer(x) * 0.1)).mean()


loss_of(FastExp.apply).backward()  # CAUSE
(right,) = torch.autograd.grad(loss_of(torch.exp), layer.weight)
print(f"error {((layer.weight.grad - right).norm() / right.norm()).item():.3f}")
