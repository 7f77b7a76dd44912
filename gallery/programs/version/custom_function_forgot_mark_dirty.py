import torch
from torch import nn

torch.manual_seed(0)


class InplaceScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        x.mul_(factor)  # CAUSE
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


body = nn.Linear(5, 8)
out = nn.Linear(8, 1)
h = torch.tanh(body(torch.randn(6, 5)))
scaled = InplaceScale.apply(h, 0.5)  # CAUSE
loss = out(scaled).square().mean()
loss.backward()
