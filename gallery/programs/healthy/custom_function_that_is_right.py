import torch
from torch import nn

torch.manual_seed(0)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


net = nn.ModuleList([nn.Linear(6, 16), nn.Linear(16, 1)])
optimizer = torch.optim.Adam(net.parameters())
for _ in range(3):
    optimizer.zero_grad()
    net[1](Swish.apply(net[0](torch.randn(8, 6)))).square().mean().backward()
    optimizer.step()
x = torch.randn(5, dtype=torch.float64, requires_grad=True)
print("gradcheck", torch.autograd.gradcheck(Swish.apply, x))
