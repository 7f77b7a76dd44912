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
        return grad * s  # CAUSE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.b(Swish.apply(self.a(x)))  # CAUSE


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(3):
    optimizer.zero_grad()
    net(torch.randn(32, 6)).pow(2).mean().backward()
    optimizer.step()

x = torch.linspace(-4, 4, 50, requires_grad=True)
(mine,) = torch.autograd.grad(Swish.apply(x).sum(), x)  # CAUSE
(right,) = torch.autograd.grad(nn.functional.silu(x).sum(), x)
print(f"largest error {(mine - right).abs().max():.3f}")
