import torch
from torch import nn

torch.manual_seed(0)


class LogCosh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        t = torch.tanh(x)
        ctx.save_for_backward(t)  # CAUSE
        return torch.log(torch.cosh(x))

    @staticmethod
    def backward(ctx, grad):
        (t,) = ctx.saved_tensors
        return grad * t  # CAUSE


def hessian_vector(loss, weight, v):
    (g,) = torch.autograd.grad(loss, weight, create_graph=True)
    (h,) = torch.autograd.grad((g * v).sum(), weight, allow_unused=True)
    return torch.zeros_like(weight) if h is None else h


weight = nn.Parameter(torch.randn(4))
x, v = torch.randn(10, 4), torch.randn(4)
mine = hessian_vector(LogCosh.apply(x @ weight).square().mean(), weight, v)  # CAUSE
right = hessian_vector(torch.log(torch.cosh(x @ weight)).square().mean(), weight, v)
print(f"hvp error {((mine - right).norm() / right.norm()).item():.3f}")
