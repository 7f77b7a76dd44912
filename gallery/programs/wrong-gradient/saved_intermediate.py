import torch
from torch import nn

torch.manual_seed(0)


class Energy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.square = x.square()  # CAUSE
        ctx.save_for_backward(x)
        return torch.exp(-ctx.square)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return -2 * x * torch.exp(-ctx.square) * grad  # CAUSE


def forces_loss(energy, positions):
    e = energy(positions).sum()
    (force,) = torch.autograd.grad(e, positions, create_graph=True)
    return (force + 0.3).square().mean()


net = nn.Linear(3, 3)
x = torch.randn(6, 3, requires_grad=True)
forces_loss(lambda p: Energy.apply(net(p)), x).backward()  # CAUSE
mine = net.weight.grad.clone()
net.zero_grad()
forces_loss(lambda p: torch.exp(-net(p).square()), x).backward()
print(f"error {((mine - net.weight.grad).norm() / net.weight.grad.norm()).item():.3f}")
