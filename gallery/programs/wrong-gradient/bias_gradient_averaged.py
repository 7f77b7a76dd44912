import torch
from torch import nn

torch.manual_seed(0)


class Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain, bias):
        ctx.save_for_backward(x, gain)
        return x * gain + bias

    @staticmethod
    def backward(ctx, grad):
        x, gain = ctx.saved_tensors
        return grad * gain, (grad * x).sum(0), grad.mean(0)  # CAUSE


gain, bias = nn.Parameter(torch.ones(5)), nn.Parameter(torch.zeros(5))
optimizer = torch.optim.SGD([gain, bias], lr=0.1)
x = torch.randn(64, 5)
loss = (Affine.apply(x, gain, bias) - 1).square().mean()  # CAUSE
loss.backward()
(right,) = torch.autograd.grad((x * gain + bias - 1).square().mean(), bias)
optimizer.step()
print(f"ratio {(bias.grad / right).mean().item():.4f}")
