import torch
from torch import nn

torch.manual_seed(0)


class Equilibrium(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, weight):
        for _ in range(2):
            z = torch.tanh(z @ weight)
        ctx.save_for_backward(z, weight)
        return z

    @staticmethod
    def backward(ctx, grad):
        z, weight = ctx.saved_tensors
        u = grad
        while True:
            new = grad + ((1 - z**2) * u) @ weight.T  # CAUSE
            if (new - u).norm() < 1e-6:  # CAUSE
                return u @ weight.T, z.T @ u
            u = new  # CAUSE


inject = nn.Linear(3, 8)
weight = nn.Parameter(torch.eye(8) * 1.8)
print("solving", flush=True)
Equilibrium.apply(0.01 * inject(torch.randn(4, 3)), weight).mean().backward()
