import torch
from torch import nn

torch.manual_seed(0)
weight = nn.Parameter(torch.randn(3))
rate = nn.Parameter(torch.tensor(0.1))
x, y = torch.randn(20, 3), torch.randn(20)


def meta_loss(create_graph):
    inner = (x[:10] @ weight - y[:10]).square().mean()
    (grad,) = torch.autograd.grad(inner, weight, create_graph=create_graph)
    adapted = weight - rate * grad
    return (x[10:] @ adapted - y[10:]).square().mean()


(right,) = torch.autograd.grad(meta_loss(True), weight)
meta_loss(create_graph=False).backward()  # CAUSE
print(f"error {((weight.grad - right).norm() / right.norm()).item():.3f}")
