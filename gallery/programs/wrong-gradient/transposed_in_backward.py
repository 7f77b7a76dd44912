import torch
from torch import nn

torch.manual_seed(0)


class FastLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, x.T @ grad  # CAUSE


first, weight = nn.Linear(6, 6), nn.Parameter(torch.randn(6, 6))
x = torch.randn(9, 6)
FastLinear.apply(first(x), weight).square().mean().backward()  # CAUSE
(right,) = torch.autograd.grad((first(x) @ weight).square().mean(), first.weight)
print(f"error {((first.weight.grad - right).norm() / right.norm()).item():.3f}")
